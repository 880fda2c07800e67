//! The control: an ordinary root file system imports, with what is kept and what is not; and the canary can die.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::{Archive, Lab, name};
use crate::image::{Progress, Skipped};

fn mode(lab: &Lab, path: &str) -> u32 {
    fs::symlink_metadata(lab.inside(path)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn an_ordinary_root_imports() {
    let lab = Lab::new();
    let info = lab.import(&Archive::root().end()).unwrap();
    assert_eq!((info.entries, info.bytes), (6, 33));
    assert_eq!(info.skipped, Skipped::default());
    assert_eq!(fs::read(lab.inside("usr/bin/sh")).unwrap(), b"#!shell");
    assert_eq!(fs::read_link(lab.inside("bin")).unwrap().to_str(), Some("usr/bin"));
    assert_eq!(lab.store.list().unwrap(), [info]);
    for made in ["dev", "proc", "tmp", "workspace", "etc", "home"] {
        assert!(lab.inside(made).is_dir(), "/{made} is missing");
    }
    assert_eq!((mode(&lab, ""), mode(&lab, "tmp")), (0o755, 0o1777));
    assert!(!lab.inside("sys").exists() && !lab.inside("run").exists());
}

#[test]
fn the_canary_shows_what_a_naive_unpacker_does() {
    let lab = Lab::new();
    lab.import(&Archive::root().end()).unwrap();
    let root = lab.inside("");
    symlink(lab.outside(""), root.join("door")).unwrap();
    fs::write(root.join("door/canary"), "gone").unwrap();
    assert!(!lab.intact());
}

#[test]
fn files_are_written_through_links_that_stay_inside() {
    let lab = Lab::new();
    let archive = Archive::root()
        .symlink("sbin", "/usr/bin")
        .file("bin/one", 0o755, b"1")
        .file("sbin/two", 0o755, b"2")
        .symlink("usr/up", "../../../../usr/bin")
        .file("usr/up/three", 0o755, b"3");
    lab.import(&archive.end()).unwrap();
    for (file, content) in [("one", "1"), ("two", "2"), ("three", "3")] {
        assert_eq!(fs::read_to_string(lab.inside("usr/bin").join(file)).unwrap(), content);
    }
}

#[test]
fn modes_lose_their_special_bits_and_gain_the_owners() {
    let lab = Lab::new();
    let archive = Archive::root()
        .file("usr/bin/su", 0o4755, b"")
        .file("usr/bin/wall", 0o2755, b"")
        .file("usr/bin/stuck", 0o1755, b"")
        .file("etc/shadow", 0o000, b"secret")
        .directory("var/", 0o555)
        .directory("var/mail/", 0o2775)
        .directory("var/tmp/", 0o1777);
    let info = lab.import(&archive.end()).unwrap();
    for (path, expected) in [
        ("usr/bin/su", 0o755),
        ("usr/bin/wall", 0o755),
        ("usr/bin/stuck", 0o755),
        ("etc/shadow", 0o600),
        ("var", 0o755),
        ("var/mail", 0o775),
        ("var/tmp", 0o1777),
    ] {
        assert_eq!(mode(&lab, path), expected, "{path}");
    }
    assert_eq!(info.skipped.special_bits, 4);
}

#[test]
fn owners_are_ours_and_times_are_the_archives() {
    let lab = Lab::new();
    lab.import(&Archive::root().end()).unwrap();
    let ours = fs::metadata(lab.images()).unwrap();
    for path in ["usr", "usr/bin", "usr/bin/sh", "bin", "etc"] {
        let found = fs::symlink_metadata(lab.inside(path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (ours.uid(), ours.gid()), "{path}");
        assert_eq!(found.mtime(), 1_000_000_000, "{path}");
    }
}

#[test]
fn a_later_entry_replaces_an_earlier_one() {
    let lab = Lab::new();
    let archive = Archive::root()
        .file("etc/motd", 0o644, b"a longer first text")
        .file("etc/motd", 0o644, b"second")
        .symlink("etc/link", "motd")
        .file("etc/link", 0o644, b"a file now")
        .file("etc/place", 0o644, b"")
        .directory("etc/place/", 0o755)
        .directory("etc/empty/", 0o755)
        .file("etc/empty", 0o644, b"full");
    lab.import(&archive.end()).unwrap();
    assert_eq!(fs::read_to_string(lab.inside("etc/motd")).unwrap(), "second");
    assert_eq!(fs::read_to_string(lab.inside("etc/link")).unwrap(), "a file now");
    assert_eq!(fs::read_to_string(lab.inside("etc/empty")).unwrap(), "full");
    assert!(lab.inside("etc/place").is_dir());
}

#[test]
fn progress_reaches_the_end_of_the_archive() {
    let lab = Lab::new();
    let archive = Archive::root().file("big", 0o644, &vec![7; 300_000]).end();
    let mut last = Progress::default();
    let info = lab
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
fn what_is_no_root_file_system_is_refused() {
    let lab = Lab::new();
    assert_eq!(lab.refusal(&Archive::default().end()), "the archive is empty");
    assert_eq!(lab.refusal(b""), "the archive is empty");
    let notes = Archive::default().file("notes.txt", 0o644, b"buy milk").end();
    assert!(lab.refusal(&notes).contains("does not look like a root file system"));
    // A single static program is root enough, and so is a /bin without one.
    lab.import(&Archive::default().file("busybox", 0o755, b"\x7fELF").end()).unwrap();
    lab.store.remove(&name("box")).unwrap();
    lab.import(&Archive::default().directory("bin", 0o755).end()).unwrap();
}
