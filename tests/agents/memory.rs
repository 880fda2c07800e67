//! What is large costs the server no more memory than what is small: pages of a long file, uploads, and directories that
//! are sent as they are packed.
//!
//! Memory is the most that the server's process ever had, as the kernel counts it. So each trial has a server of its own,
//! asks for something small first, and then for the same thing large.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};

use serde_json::json;
use tests::support::host;
use tests::support::server::Server;
use tests::support::wait::wait_until;

use crate::caller::Caller;
use crate::site::{Site, is_soak};
use crate::workspace::Workspace;
use crate::zips::{Entry, zip};

const MIB: usize = 1 << 20;
/// What a stride, a few pieces ahead and another thread may take.
const MAX_GROWTH_KB: u64 = 12 << 10;
/// Of an upload of 50 MiB. Beside a busy neighbour 13 to 24 MiB were measured; a body that is kept whole takes more than 50.
const MAX_UPLOAD_GROWTH_KB: u64 = 32 << 10;
const LINES: usize = 5_000_000;
const LINE_LENGTH: usize = 200;
/// The longest body that there may be unless the settings say otherwise.
const MAX_UPLOAD: usize = 50 * MIB;

/// The most memory that a process ever had.
fn peak_kb(process: u32) -> u64 {
    let field = host::field(process, "VmHWM").unwrap();
    field.split_whitespace().next().unwrap().parse().unwrap()
}

/// How many bytes a process has read so far, from whatever.
fn bytes_read(process: u32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// What `act` adds to the most that the server ever had.
fn growth_kb(server: &Server, act: impl FnOnce()) -> u64 {
    let before = peak_kb(server.id());
    act();
    peak_kb(server.id()) - before
}

fn own_workspace(server: &Server) -> Workspace {
    Workspace::new(Caller::of(server, &server.token), "default", "a")
}

/// A file of the workspace's owner with so much in it; written from the host, because that takes a tenth of the time.
fn fill(agent: &Workspace, path: &str, pieces: usize, piece: impl Fn(usize) -> Vec<u8>) {
    agent.put(path, "");
    let mut file = OpenOptions::new().write(true).open(agent.on_disk(path)).unwrap();
    for number in 0..pieces {
        file.write_all(&piece(number)).unwrap();
    }
}

fn line(number: usize) -> String {
    format!("{:.<1$}", format!("line {number:09}"), LINE_LENGTH - 1)
}

/// A gigabyte of five million lines.
pub(crate) fn a_late_page_costs_no_memory(site: &Site) {
    let server = site.start();
    let agent = own_workspace(&server);
    agent.put("files/small", &format!("{}\n", line(1)));
    // All but the last thousand are the same thousand again and again, because writing numbers is slow.
    let thousand = |from: usize| (from..from + 1000).map(|number| line(number) + "\n").collect::<String>().into_bytes();
    let (same, last) = (thousand(1), thousand(LINES - 999));
    let pieces = LINES / 1000;
    fill(&agent, "files/big", pieces, |piece| if piece + 1 < pieces { same.clone() } else { last.clone() });
    assert_eq!(fs::metadata(agent.on_disk("files/big")).unwrap().len(), 1_000_000_000);
    // What changed just now is not kept in mind, because it could change again within the same tick of the clock.
    let changed = fs::metadata(agent.on_disk("files/big")).unwrap().modified().unwrap();
    wait_until("a file that is no longer new", || changed.elapsed().is_ok_and(|age| age.as_millis() > 100));
    let page = |path: &str, number: usize, expected: usize| {
        let found = agent.page(path, &format!("&offset={number}&limit=1")).success();
        assert_eq!(found["lines"], json!([line(expected)]), "line {number} of {path}");
    };
    page("files/small", 1, 1);
    page("files/big", 1, 1);
    let grown = growth_kb(&server, || {
        page("files/big", LINES, LINES);
        let before = bytes_read(server.id());
        page("files/big", LINES - 10, LINES - 10);
        page("files/big", LINES / 2, 1000);
        let again = bytes_read(server.id()) - before;
        assert!(again < 4 * MIB as u64, "a page of which the place is known took {again} bytes to find");
        let beyond = agent.page("files/big", &format!("&offset={}", LINES + 1)).success();
        assert_eq!(beyond, json!({ "content": "", "lines": [] }));
    });
    assert!(grown < MAX_GROWTH_KB, "late pages of a gigabyte took {grown} KiB more than the first of a short file");
}

/// As large as an upload may be, to the byte, and stored, so that what comes in is what is written.
pub(crate) fn a_large_upload_costs_no_memory(site: &Site) {
    let server = site.start();
    let agent = own_workspace(&server);
    let archive = |length: usize| {
        let packed =
            |data: usize| zip(&[Entry::file("s/SKILL.md", b"name: s\n"), Entry::file("s/data", &vec![7; data])]);
        packed(length - packed(0).len())
    };
    let (small, large, too_large) = (archive(MIB), archive(MAX_UPLOAD), archive(MAX_UPLOAD + 1));
    agent.push(&small).success();
    agent.upload("x", &small).success();
    let grown = growth_kb(&server, || {
        agent.push(&large).success();
        agent.upload("x", &large).success();
        agent.push(&too_large).refused(413);
        agent.upload("x", &too_large).refused(413);
    });
    assert_eq!(fs::read(agent.on_disk("files/x")).unwrap(), large);
    assert!(fs::metadata(agent.on_disk("skills/s/data")).unwrap().len() > 49 << 20);
    assert!(grown < MAX_UPLOAD_GROWTH_KB, "uploads of 50 MiB took {grown} KiB more than those of one");
}

/// What is in it cannot be packed, so that neither what is read nor what is sent could be kept without being seen.
pub(crate) fn a_large_directory_costs_no_memory(site: &Site) {
    const FILES: usize = 2;
    // A build for tests packs no more than this in a few seconds.
    let pieces = if is_soak() { 256 } else { 16 };
    let server = site.start();
    let agent = own_workspace(&server);
    let mut random = vec![0; MIB];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    fill(&agent, "files/small/x", 1, |_| random.clone());
    for number in 0..FILES {
        fill(&agent, &format!("files/large/{number}"), pieces, |_| random.clone());
    }
    let download = |path: &str| {
        let authorization = format!("Bearer {}", server.token);
        let route = format!("/v1/a/download?path={path}");
        let answer = server.send("GET", &route, &[("authorization", &authorization)], None);
        assert_eq!(answer.status(), 200);
        std::io::copy(&mut answer.into_body().into_reader(), &mut std::io::sink()).unwrap()
    };
    assert!(download("files/small") > MIB as u64);
    let grown = growth_kb(&server, || assert!(download("files/large") > (FILES * pieces * MIB) as u64));
    assert!(grown < MAX_GROWTH_KB, "a zip of {} MiB took {grown} KiB more than one of one", FILES * pieces);
}
