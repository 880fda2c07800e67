//! Links created by one entry and used by a later one.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{Archive, Fixture};

#[test]
fn file_through_absolute_link_stays_inside_root() {
    // The lookup starts at the image's root, so the path exists only if an entry created it there.
    let fixture = Fixture::new();
    let outside = fixture.outside("");
    let archive = Archive::root().symlink("door", outside.to_str().unwrap()).file("door/canary", 0o644, b"gone");
    assert!(fixture.refusal(&archive.end()).contains("leads nowhere inside the image"));
    let archive = Archive::root().symlink("door", "../../../../outside").file("door/canary", 0o644, b"gone");
    assert!(fixture.refusal(&archive.end()).contains("leads nowhere inside the image"));
    // With that path created inside the image, the file is written there.
    let archive = Archive::root().directory("outside/", 0o755).symlink("door", "../../../../outside").file(
        "door/canary",
        0o644,
        b"inside",
    );
    fixture.import(&archive.end()).unwrap();
    assert_eq!(fs::read_to_string(fixture.inside("outside/canary")).unwrap(), "inside");
}

#[test]
fn file_replaces_link_of_same_name() {
    let fixture = Fixture::new();
    let canary = fixture.outside("canary");
    let archive = Archive::root().symlink("etc/motd", canary.to_str().unwrap()).file("etc/motd", 0o644, b"gone");
    fixture.import(&archive.end()).unwrap();
    assert_eq!(fs::read_to_string(fixture.inside("etc/motd")).unwrap(), "gone");
}

#[test]
fn directory_replaces_link_without_changing_its_target() {
    let fixture = Fixture::new();
    let outside = fixture.outside("");
    let archive = Archive::root().symlink("srv", outside.to_str().unwrap()).directory("srv/", 0o700).file(
        "srv/canary",
        0o644,
        b"inside",
    );
    fixture.import(&archive.end()).unwrap();
    assert!(fs::symlink_metadata(fixture.inside("srv")).unwrap().is_dir());
}

#[test]
fn parent_replaced_by_link_is_looked_up_again() {
    // The handle of the last parent is cached; replacing the parent must clear it.
    let fixture = Fixture::new();
    let archive = Archive::root()
        .file("srv/first", 0o644, b"1")
        .directory("other/", 0o755)
        .directory("empty/", 0o755)
        .symlink("empty", "other")
        .file("empty/second", 0o644, b"2");
    fixture.import(&archive.end()).unwrap();
    assert!(fixture.inside("other/second").is_file());
    let refusal = Fixture::new().refusal(&Archive::root().file("srv/first", 0o644, b"1").symlink("srv", "/").end());
    assert!(refusal.contains("directory that is not empty"), "{refusal}");
}

#[test]
fn hard_link_to_outside_is_refused() {
    let fixture = Fixture::new();
    let canary = fixture.outside("canary");
    let absolute = Archive::root().pax(&[("linkpath", canary.to_str().unwrap().as_bytes())]);
    assert!(fixture.refusal(&absolute.hard_link("etc/x", "").end()).contains("is absolute"));
    let climbing = Archive::root().hard_link("etc/x", "../../../../outside/canary");
    assert!(fixture.refusal(&climbing.end()).contains("contains `..`"));
    let through =
        Archive::root().symlink("door", fixture.outside("").to_str().unwrap()).hard_link("etc/x", "door/canary");
    assert!(fixture.refusal(&through.end()).contains("not in the archive before it"));
    for (target, problem) in [("usr/none", "not in the archive"), ("usr", "to a directory"), (".", "to a directory")] {
        let refusal = fixture.refusal(&Archive::root().hard_link("etc/x", target).end());
        assert!(refusal.contains(problem), "{refusal}");
    }
    assert_eq!(fs::metadata(&canary).unwrap().nlink(), 1);
}

#[test]
fn hard_link_to_symlink_links_the_symlink() {
    let fixture = Fixture::new();
    let canary = fixture.outside("canary");
    let archive = Archive::root()
        .symlink("etc/a", canary.to_str().unwrap())
        .hard_link("etc/b", "etc/a")
        .hard_link("etc/c", "etc/b")
        .file("etc/c", 0o4777, b"gone");
    fixture.import(&archive.end()).unwrap();
    assert!(fs::symlink_metadata(fixture.inside("etc/b")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(fixture.inside("etc/c")).unwrap(), "gone");
    assert_eq!(fs::metadata(&canary).unwrap().nlink(), 1);
}

#[test]
fn hard_linked_names_share_inode_until_replaced() {
    let fixture = Fixture::new();
    let archive = Archive::root()
        .file("etc/a", 0o644, b"kept")
        .hard_link("etc/b", "etc/a")
        .hard_link("etc/c", "./etc//a")
        .hard_link("etc/d", "etc/c")
        .hard_link("etc/a", "etc/a")
        .hard_link("usr/bin/sh2", "bin/sh")
        .file("etc/d", 0o644, b"new");
    fixture.import(&archive.end()).unwrap();
    let inode = |path: &str| fs::metadata(fixture.inside(path)).unwrap().ino();
    assert_eq!(inode("etc/a"), inode("etc/b"));
    assert_eq!(inode("etc/a"), inode("etc/c"));
    assert_eq!(inode("usr/bin/sh"), inode("usr/bin/sh2"));
    assert_eq!(fs::read_to_string(fixture.inside("etc/a")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(fixture.inside("etc/d")).unwrap(), "new");
}

#[test]
fn contradicting_entries_are_refused() {
    for (archive, problem) in [
        (Archive::root().file("usr", 0o644, b"x"), "directory that is not empty"),
        (Archive::root().symlink("usr", "/"), "directory that is not empty"),
        (Archive::root().hard_link("usr", "etc/passwd"), "directory that is not empty"),
        (Archive::root().file("etc/passwd/x", 0o644, b"x"), "not a directory"),
        (Archive::root().symlink("a", "b").symlink("b", "a").file("a/x", 0o644, b"x"), "form a loop"),
        (Archive::root().symlink("a", "nowhere").file("a/x", 0o644, b"x"), "leads nowhere"),
        (Archive::root().symlink("a", "nowhere").file("a/b/c/x", 0o644, b"x"), "leads nowhere"),
        (Archive::root().symlink("a", ""), "target is empty"),
        (Archive::root().pax(&[("linkpath", b"a\0b")]).symlink("a", ""), "NUL"),
        (Archive::root().pax(&[("linkpath", &[b'a'; 5000])]).symlink("a", ""), "longer than 4095"),
        (Archive::root().file(".", 0o644, b"x"), "root must be a directory"),
        (Archive::root().symlink("./", "/"), "root must be a directory"),
    ] {
        let refusal = Fixture::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "expected {problem:?}: {refusal}");
    }
}

#[test]
fn proc_magic_links_do_not_open() {
    // Magic links of /proc lead anywhere, regardless of the root of a lookup.
    let fixture = Fixture::new();
    let archive = Archive::root().symlink("door", "/proc/self/cwd").file("door/planted", 0o644, b"x");
    assert!(fixture.refusal(&archive.end()).contains("leads nowhere inside the image"));
}
