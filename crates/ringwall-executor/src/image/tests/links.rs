//! Links planted by one entry and used by the next.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{Archive, Lab};

#[test]
fn a_file_through_a_planted_link_stays_inside() {
    // The lookup starts at the image's root, so the path exists only if somebody made it there.
    let lab = Lab::new();
    let outside = lab.outside("");
    let archive = Archive::root().symlink("door", outside.to_str().unwrap()).file("door/canary", 0o644, b"gone");
    assert!(lab.refusal(&archive.end()).contains("leads nowhere inside the image"));
    let archive = Archive::root().symlink("door", "../../../../outside").file("door/canary", 0o644, b"gone");
    assert!(lab.refusal(&archive.end()).contains("leads nowhere inside the image"));
    // The same with the place made inside: the write lands there.
    let archive = Archive::root().directory("outside/", 0o755).symlink("door", "../../../../outside").file(
        "door/canary",
        0o644,
        b"inside",
    );
    lab.import(&archive.end()).unwrap();
    assert_eq!(fs::read_to_string(lab.inside("outside/canary")).unwrap(), "inside");
}

#[test]
fn a_file_over_a_link_replaces_the_link() {
    let lab = Lab::new();
    let canary = lab.outside("canary");
    let archive = Archive::root().symlink("etc/motd", canary.to_str().unwrap()).file("etc/motd", 0o644, b"gone");
    lab.import(&archive.end()).unwrap();
    assert_eq!(fs::read_to_string(lab.inside("etc/motd")).unwrap(), "gone");
}

#[test]
fn a_directory_over_a_link_does_not_change_what_the_link_meant() {
    let lab = Lab::new();
    let outside = lab.outside("");
    let archive = Archive::root().symlink("srv", outside.to_str().unwrap()).directory("srv/", 0o700).file(
        "srv/canary",
        0o644,
        b"inside",
    );
    lab.import(&archive.end()).unwrap();
    assert!(fs::symlink_metadata(lab.inside("srv")).unwrap().is_dir());
}

#[test]
fn a_parent_swapped_for_a_link_is_looked_up_again() {
    // The handle of the last parent is kept; replacing the parent must forget it.
    let lab = Lab::new();
    let archive = Archive::root()
        .file("srv/first", 0o644, b"1")
        .directory("other/", 0o755)
        .directory("empty/", 0o755)
        .symlink("empty", "other")
        .file("empty/second", 0o644, b"2");
    lab.import(&archive.end()).unwrap();
    assert!(lab.inside("other/second").is_file());
    let refusal = Lab::new().refusal(&Archive::root().file("srv/first", 0o644, b"1").symlink("srv", "/").end());
    assert!(refusal.contains("directory that is not empty"), "{refusal}");
}

#[test]
fn hard_links_reach_nothing_outside() {
    let lab = Lab::new();
    let canary = lab.outside("canary");
    let absolute = Archive::root().pax(&[("linkpath", canary.to_str().unwrap().as_bytes())]);
    assert!(lab.refusal(&absolute.hard_link("etc/x", "").end()).contains("starts at the root"));
    let climbing = Archive::root().hard_link("etc/x", "../../../../outside/canary");
    assert!(lab.refusal(&climbing.end()).contains("climbs out"));
    let through = Archive::root().symlink("door", lab.outside("").to_str().unwrap()).hard_link("etc/x", "door/canary");
    assert!(lab.refusal(&through.end()).contains("not in the archive before it"));
    for (target, problem) in [("usr/none", "not in the archive"), ("usr", "to a directory"), (".", "to a directory")] {
        let refusal = lab.refusal(&Archive::root().hard_link("etc/x", target).end());
        assert!(refusal.contains(problem), "{refusal}");
    }
    assert_eq!(fs::metadata(&canary).unwrap().nlink(), 1);
}

#[test]
fn a_hard_link_to_a_link_is_the_link_and_is_never_written_through() {
    let lab = Lab::new();
    let canary = lab.outside("canary");
    let archive = Archive::root()
        .symlink("etc/a", canary.to_str().unwrap())
        .hard_link("etc/b", "etc/a")
        .hard_link("etc/c", "etc/b")
        .file("etc/c", 0o4777, b"gone");
    lab.import(&archive.end()).unwrap();
    assert!(fs::symlink_metadata(lab.inside("etc/b")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(lab.inside("etc/c")).unwrap(), "gone");
    assert_eq!(fs::metadata(&canary).unwrap().nlink(), 1);
}

#[test]
fn hard_links_join_names_and_writing_one_leaves_the_others() {
    let lab = Lab::new();
    let archive = Archive::root()
        .file("etc/a", 0o644, b"kept")
        .hard_link("etc/b", "etc/a")
        .hard_link("etc/c", "./etc//a")
        .hard_link("etc/d", "etc/c")
        .hard_link("etc/a", "etc/a")
        .hard_link("usr/bin/sh2", "bin/sh")
        .file("etc/d", 0o644, b"new");
    lab.import(&archive.end()).unwrap();
    let inode = |path: &str| fs::metadata(lab.inside(path)).unwrap().ino();
    assert_eq!(inode("etc/a"), inode("etc/b"));
    assert_eq!(inode("etc/a"), inode("etc/c"));
    assert_eq!(inode("usr/bin/sh"), inode("usr/bin/sh2"));
    assert_eq!(fs::read_to_string(lab.inside("etc/a")).unwrap(), "kept");
    assert_eq!(fs::read_to_string(lab.inside("etc/d")).unwrap(), "new");
}

#[test]
fn contradictions_are_refused() {
    for (archive, problem) in [
        (Archive::root().file("usr", 0o644, b"x"), "directory that is not empty"),
        (Archive::root().symlink("usr", "/"), "directory that is not empty"),
        (Archive::root().hard_link("usr", "etc/passwd"), "directory that is not empty"),
        (Archive::root().file("etc/passwd/x", 0o644, b"x"), "not a directory"),
        (Archive::root().symlink("a", "b").symlink("b", "a").file("a/x", 0o644, b"x"), "in a circle"),
        (Archive::root().symlink("a", "nowhere").file("a/x", 0o644, b"x"), "leads nowhere"),
        (Archive::root().symlink("a", "nowhere").file("a/b/c/x", 0o644, b"x"), "leads nowhere"),
        (Archive::root().symlink("a", ""), "target is empty"),
        (Archive::root().pax(&[("linkpath", b"a\0b")]).symlink("a", ""), "NUL"),
        (Archive::root().pax(&[("linkpath", &[b'a'; 5000])]).symlink("a", ""), "longer than 4095"),
        (Archive::root().file(".", 0o644, b"x"), "root must be a directory"),
        (Archive::root().symlink("./", "/"), "root must be a directory"),
    ] {
        let refusal = Lab::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "expected {problem:?}: {refusal}");
    }
}

#[test]
fn links_to_processes_do_not_open() {
    // Magic links jump anywhere, whatever root a lookup was given.
    let lab = Lab::new();
    let archive = Archive::root().symlink("door", "/proc/self/cwd").file("door/planted", 0o644, b"x");
    assert!(lab.refusal(&archive.end()).contains("leads nowhere inside the image"));
}
