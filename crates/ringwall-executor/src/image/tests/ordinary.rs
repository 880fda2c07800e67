//! Control: an ordinary root file system is imported as expected, and the canary detects an escape.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::{Archive, Fixture, name};
use crate::image::{Progress, Skipped};

fn mode(fixture: &Fixture, path: &str) -> u32 {
    fs::symlink_metadata(fixture.inside(path)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn ordinary_root_is_imported() {
    let fixture = Fixture::new();
    let info = fixture.import(&Archive::root().end()).unwrap();
    assert_eq!((info.entries, info.bytes), (6, 33));
    assert_eq!(info.skipped, Skipped::default());
    assert_eq!(fs::read(fixture.inside("usr/bin/sh")).unwrap(), b"#!shell");
    assert_eq!(fs::read_link(fixture.inside("bin")).unwrap().to_str(), Some("usr/bin"));
    assert_eq!(fixture.store.list().unwrap(), [info]);
    for made in ["dev", "proc", "tmp", "workspace", "etc", "home"] {
        assert!(fixture.inside(made).is_dir(), "/{made} is missing");
    }
    assert_eq!((mode(&fixture, ""), mode(&fixture, "tmp")), (0o755, 0o1777));
    assert!(!fixture.inside("sys").exists() && !fixture.inside("run").exists());
}

#[test]
fn canary_detects_escape_of_naive_unpacker() {
    let fixture = Fixture::new();
    fixture.import(&Archive::root().end()).unwrap();
    let root = fixture.inside("");
    symlink(fixture.outside(""), root.join("door")).unwrap();
    fs::write(root.join("door/canary"), "gone").unwrap();
    assert!(!fixture.intact());
}

#[test]
fn file_is_written_through_link_inside_root() {
    let fixture = Fixture::new();
    let archive = Archive::root()
        .symlink("sbin", "/usr/bin")
        .file("bin/one", 0o755, b"1")
        .file("sbin/two", 0o755, b"2")
        .symlink("usr/up", "../../../../usr/bin")
        .file("usr/up/three", 0o755, b"3");
    fixture.import(&archive.end()).unwrap();
    for (file, content) in [("one", "1"), ("two", "2"), ("three", "3")] {
        assert_eq!(fs::read_to_string(fixture.inside("usr/bin").join(file)).unwrap(), content);
    }
}

#[test]
fn modes_lose_special_bits_and_gain_owner_permissions() {
    let fixture = Fixture::new();
    let archive = Archive::root()
        .file("usr/bin/su", 0o4755, b"")
        .file("usr/bin/wall", 0o2755, b"")
        .file("usr/bin/stuck", 0o1755, b"")
        .file("etc/shadow", 0o000, b"secret")
        .directory("var/", 0o555)
        .directory("var/mail/", 0o2775)
        .directory("var/tmp/", 0o1777);
    let info = fixture.import(&archive.end()).unwrap();
    for (path, expected) in [
        ("usr/bin/su", 0o755),
        ("usr/bin/wall", 0o755),
        ("usr/bin/stuck", 0o755),
        ("etc/shadow", 0o600),
        ("var", 0o755),
        ("var/mail", 0o775),
        ("var/tmp", 0o1777),
    ] {
        assert_eq!(mode(&fixture, path), expected, "{path}");
    }
    assert_eq!(info.skipped.special_bits, 4);
}

#[test]
fn owner_is_server_and_times_are_from_archive() {
    let fixture = Fixture::new();
    fixture.import(&Archive::root().end()).unwrap();
    let ours = fs::metadata(fixture.images()).unwrap();
    for path in ["usr", "usr/bin", "usr/bin/sh", "bin", "etc"] {
        let found = fs::symlink_metadata(fixture.inside(path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (ours.uid(), ours.gid()), "{path}");
        assert_eq!(found.mtime(), 1_000_000_000, "{path}");
    }
}

#[test]
fn later_entry_replaces_earlier_one() {
    let fixture = Fixture::new();
    let archive = Archive::root()
        .file("etc/motd", 0o644, b"a longer first text")
        .file("etc/motd", 0o644, b"second")
        .symlink("etc/link", "motd")
        .file("etc/link", 0o644, b"a file now")
        .file("etc/place", 0o644, b"")
        .directory("etc/place/", 0o755)
        .directory("etc/empty/", 0o755)
        .file("etc/empty", 0o644, b"full");
    fixture.import(&archive.end()).unwrap();
    assert_eq!(fs::read_to_string(fixture.inside("etc/motd")).unwrap(), "second");
    assert_eq!(fs::read_to_string(fixture.inside("etc/link")).unwrap(), "a file now");
    assert_eq!(fs::read_to_string(fixture.inside("etc/empty")).unwrap(), "full");
    assert!(fixture.inside("etc/place").is_dir());
}

#[test]
fn progress_reaches_end_of_archive() {
    let fixture = Fixture::new();
    let archive = Archive::root().file("big", 0o644, &vec![7; 300_000]).end();
    let mut last = Progress::default();
    let info = fixture
        .store
        .import(&name("box"), "-", archive.as_slice(), &mut |progress| {
            assert!(progress.read >= last.read && progress.bytes >= last.bytes);
            last = progress;
        })
        .unwrap();
    assert_eq!((last.entries, last.bytes), (info.entries, info.bytes));
    assert_eq!(last.read, archive.len() as u64);
}

#[test]
fn archive_without_root_file_system_is_refused() {
    let fixture = Fixture::new();
    assert_eq!(fixture.refusal(&Archive::default().end()), "the archive is empty");
    assert_eq!(fixture.refusal(b""), "the archive is empty");
    let notes = Archive::default().file("notes.txt", 0o644, b"buy milk").end();
    assert!(fixture.refusal(&notes).contains("does not look like a root file system"));
    // One static program suffices, or a /bin directory without any.
    fixture.import(&Archive::default().file("busybox", 0o755, b"\x7fELF").end()).unwrap();
    fixture.store.remove(&name("box")).unwrap();
    fixture.import(&Archive::default().directory("bin", 0o755).end()).unwrap();
}
