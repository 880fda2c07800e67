//! Malicious archives, built by hand. Each is rejected with the right status, nothing changes, and
//! the server continues to run.

use std::fs;

use serde_json::json;
use tests::support::scratch::Scratch;

use crate::fixture::{Fixture, set, workspace_on};
use crate::workspace::{Workspace, snapshot};
use crate::zips::{self, DESCRIPTOR, ENCRYPTED, Entry, zip};

const SKILL_TEXT: &[u8] = b"name: hostile\n";

fn skill_file() -> Entry {
    Entry::file("h/SKILL.md", SKILL_TEXT)
}

/// Checks that each archive is rejected with this status and that nothing changed.
fn assert_refused(agent: &Workspace, archives: &[(&str, Vec<u8>)], status: u16) {
    agent.push(&zips::skill("h", "old")).success();
    let before = snapshot(&agent.on_disk(""));
    for (what, bytes) in archives {
        let response = agent.push(bytes);
        assert_eq!(response.status, status, "{what}: {response:?}");
        assert_eq!(snapshot(&agent.on_disk("")), before, "{what} changed something");
    }
    assert_eq!(agent.text("skills/h/main.py"), "old");
}

pub(crate) fn names_that_lead_out_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let absolute = format!("{}/planted", scratch.path().display());
    let names = [
        "../x",
        "h/../../x",
        "h/../x",
        "h/..",
        "..",
        "/etc/x",
        &absolute,
        "//x",
        "h//x",
        "h/./x",
        "./h/x",
        "C:\\x",
        "C:/x",
        "h\\..\\..\\x",
        "\\\\host\\share\\x",
        "h/a\\b",
        "h/x\0y",
        "",
        "/",
        "h/\u{1}/../..",
        "~/x/../../y",
    ];
    let archives: Vec<(&str, Vec<u8>)> =
        names.iter().map(|name| (*name, zip(&[skill_file(), Entry::file(name, b"planted")]))).collect();
    // Some of these names are only unusual; they may be accepted if they stay in the skill.
    agent.push(&zips::skill("h", "old")).success();
    let before = snapshot(&agent.on_disk(""));
    for (name, bytes) in &archives {
        let response = agent.push(bytes);
        let is_harmless = ["h//x", "h/./x", "./h/x"].contains(name);
        assert!(response.status == 400 || is_harmless && response.status == 200, "{name:?}: {response:?}");
        if response.status == 200 {
            assert_eq!(agent.listed("skills"), ["skills/h/SKILL.md", "skills/h/x"], "{name:?}");
            agent.push(&zips::skill("h", "old")).success();
        }
        assert_eq!(snapshot(&agent.on_disk("")), before, "{name:?} changed something");
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    let long = "x".repeat(300);
    let deep = format!("h/{}x", "d/".repeat(3000));
    for name in [format!("h/{long}"), format!("{long}/SKILL.md"), deep] {
        agent.push(&zip(&[skill_file(), Entry::file(&name, b"x")])).expect_error(400);
    }
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

pub(crate) fn symlinks_and_special_files_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let outside = scratch.path().to_str().unwrap();
    let huge = Entry { size: u32::MAX - 1, ..Entry::link("h/link", "x") };
    let of_kind = |kind: u32| Entry { mode: kind | 0o666, ..Entry::file("h/odd", b"") };
    let archives = [
        ("a link out", zip(&[skill_file(), Entry::link("h/link", outside)])),
        (
            "a link and a file through it",
            zip(&[skill_file(), Entry::link("h/d", outside), Entry::file("h/d/x", b"planted")]),
        ),
        ("a link inside", zip(&[skill_file(), Entry::link("h/link", "SKILL.md")])),
        ("a head that is a link", zip(&[Entry::link("h/SKILL.md", "/etc/passwd")])),
        ("a folder that is a link", zip(&[Entry::link("h", outside), Entry::file("h/SKILL.md", SKILL_TEXT)])),
        ("a link of four gigabytes", zip(&[skill_file(), huge])),
        ("a pipe", zip(&[skill_file(), of_kind(0o010_000)])),
        ("a character device", zip(&[skill_file(), of_kind(0o020_000)])),
        ("a block device", zip(&[skill_file(), of_kind(0o060_000)])),
        ("a socket", zip(&[skill_file(), of_kind(0o140_000)])),
    ];
    assert_refused(&agent, &archives, 400);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    // Set-user-id and similar bits are dropped.
    let mut special = Entry::file("h/special", b"#!/bin/sh\n");
    special.mode = 0o106_777;
    agent.push(&zip(&[skill_file(), special])).success();
    let result = agent.run("echo; stat -c %a skills/h/special");
    assert!(result.code == 0 && result.stdout.trim().len() == 3, "{result:?}");
}

pub(crate) fn colliding_names_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let file = |name: &str| Entry::file(name, b"x");
    let archives = [
        ("a name twice", zip(&[skill_file(), file("h/x"), file("h/x")])),
        ("a head twice", zip(&[skill_file(), Entry::file("h/SKILL.md", b"name: second\n")])),
        ("a file and a directory", zip(&[skill_file(), file("h/x"), Entry::directory("h/x/")])),
        ("a file and something beneath it", zip(&[skill_file(), file("h/x"), file("h/x/y")])),
        ("something and then a file above it", zip(&[skill_file(), file("h/x/y"), file("h/x")])),
    ];
    assert_refused(&agent, &archives, 400);
}

pub(crate) fn broken_archives_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let bad_crc = Entry { crc: 1, ..Entry::file("h/x", b"content") };
    let bad_crc_deflated = Entry { crc: 1, ..Entry::deflated("h/x", b"content content content") };
    let no_descriptor = Entry { flags: DESCRIPTOR, crc: 0, size: 0, ..Entry::file("h/x", b"content") };
    let garbage = Entry { method: zips::DEFLATED, ..Entry::file("h/x", b"\xff\xff\xff\xff\xff") };
    let overlapping = Entry { offset: Some(0), ..Entry::file("h/y", SKILL_TEXT) };
    let beyond = Entry { offset: Some(1 << 30), ..Entry::file("h/y", b"x") };
    let valid = zips::skill("h", "new");
    let mut bad_directory = valid.clone();
    let place = bad_directory.len() - 22 - 8;
    bad_directory[place] ^= 0xff;
    let archives = [
        ("a wrong checksum", zip(&[skill_file(), bad_crc])),
        ("a wrong checksum, packed", zip(&[skill_file(), bad_crc_deflated])),
        ("no data descriptor", zip(&[skill_file(), no_descriptor])),
        ("garbage declared as deflated", zip(&[skill_file(), garbage])),
        ("two entries of the same bytes", zip(&[skill_file(), overlapping])),
        ("an entry beyond the end", zip(&[skill_file(), beyond])),
        ("a truncated end", valid[..valid.len() - 10].to_vec()),
        ("a truncated beginning", valid[40..].to_vec()),
        ("a corrupt central directory", bad_directory),
    ];
    assert_refused(&agent, &archives, 400);
    let encrypted = Entry { flags: ENCRYPTED, ..Entry::file("h/x", b"content") };
    let unknown = Entry { method: 97, ..Entry::file("h/x", b"content") };
    let archives =
        [("an encrypted entry", zip(&[skill_file(), encrypted])), ("an unknown method", zip(&[skill_file(), unknown]))];
    assert_refused(&agent, &archives, 400);
}

pub(crate) fn decompression_bombs_are_rejected(fixture: &Fixture) {
    let server = fixture.start();
    set(&server, &json!({ "skills": { "unpacked_max_mb": 8, "entries_max": 100 } }));
    let agent = workspace_on(&server);
    let zeros = vec![0; 64 << 20];
    let bomb = Entry::deflated("h/bomb", &zeros);
    let modest = Entry { size: 10, ..bomb.clone() };
    let huge = Entry { size: u32::MAX - 1, ..bomb.clone() };
    let mut many: Vec<Entry> = (0..101).map(|number| Entry::file(&format!("h/{number}"), b"")).collect();
    many.push(skill_file());
    let piece = Entry::deflated("h/piece", &zeros[..1 << 20]);
    let mut pieces: Vec<Entry> =
        (0..20).map(|number| Entry { name: format!("h/{number}").into(), ..piece.clone() }).collect();
    pieces.push(skill_file());
    let archives = [
        ("sixty-four megabytes", zip(&[skill_file(), bomb])),
        ("sixty-four megabytes that claim to be four gigabytes", zip(&[skill_file(), huge])),
        ("twenty times one megabyte", zip(&pieces)),
        ("a hundred and two entries", zip(&many)),
    ];
    assert_refused(&agent, &archives, 413);
    // An archive that declares less than it contains is corrupt, and no more than declared is
    // written.
    assert_refused(&agent, &[("sixty-four megabytes that claim to be ten bytes", zip(&[skill_file(), modest]))], 400);
    // The limit applies to the unpacked size, and an archive in an archive is an ordinary file.
    let inner = zips::skill("inner", "x");
    agent.push(&zip(&[skill_file(), Entry::file("h/inner.zip", &inner)])).success();
    assert_eq!(agent.listed("skills"), ["skills/h/SKILL.md", "skills/h/inner.zip"]);
    many.truncate(99);
    many[0] = skill_file();
    agent.push(&zip(&many)).success();
    let staged = snapshot(&agent.on_disk(".staging"));
    assert!(staged.is_empty(), "left in .staging: {:?}", staged.keys());
}

/// The default limit of entries.
pub(crate) fn too_many_entries_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let mut entries: Vec<Entry> = (0..20_001).map(|number| Entry::file(&format!("h/{number}"), b"")).collect();
    entries.push(skill_file());
    assert_refused(&agent, &[("twenty thousand and two entries", zip(&entries))], 413);
}

/// `SKILL.md` in a subdirectory of an archive, or in another letter case.
pub(crate) fn nested_skill_files_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let archive_with = |name: &str| zip(&[skill_file(), Entry::file(name, b"name: planted\n")]);
    let names = ["h/sub/SKILL.md", "h/sub/skill.md", "h/skill.MD"];
    // Rejected by the rule for the reserved name, with its text and status.
    assert_refused(&agent, &names.map(|name| (name, archive_with(name))), 403);
    for name in names {
        assert!(agent.push(&archive_with(name)).expect_error(403).contains("system reserved file"), "{name}");
    }
    assert_eq!(agent.skill_names(), ["h"]);
}
