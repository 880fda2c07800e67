//! Names that climb, lie, or do not fit, and names on which a box mounts.

use std::fs;

use super::{Archive, Lab};

#[test]
fn climbing_names_are_refused() {
    for climbing in ["../outside/canary", "usr/../../../../outside/canary", "..", "usr/.."] {
        let refusal = Lab::new().refusal(&Archive::root().file(climbing, 0o644, b"x").end());
        assert!(refusal.contains("climbs out"), "{climbing}: {refusal}");
    }
    let lab = Lab::new();
    let deep = "../../../../../../../outside/canary";
    let archive = Archive::root().pax(&[("path", deep.as_bytes())]).file("harmless", 0o644, b"x");
    assert!(lab.refusal(&archive.end()).contains("climbs out"));
    let archive = Archive::root().long_name(deep.as_bytes()).file("harmless", 0o644, b"x");
    assert!(lab.refusal(&archive.end()).contains("climbs out"));
}

#[test]
fn absolute_names_are_refused() {
    let lab = Lab::new();
    let target = lab.outside("planted");
    let archive = Archive::root().pax(&[("path", target.to_str().unwrap().as_bytes())]).file("x", 0o644, b"x");
    assert!(lab.refusal(&archive.end()).contains("starts at the root"));
    assert!(!target.exists());
}

#[test]
fn names_that_no_file_system_takes_are_refused() {
    let long_component = [b"usr/".as_slice(), &[b'a'; 256]].concat();
    let long_path = b"a/".repeat(2048);
    let deep = b"d/".repeat(129);
    for (given, problem) in [
        (long_component.as_slice(), "longer than 255"),
        (long_path.as_slice(), "longer than 4095"),
        (deep.as_slice(), "nested more than 128"),
        (b"etc/pass\0wd".as_slice(), "NUL"),
        (b"".as_slice(), "is empty"),
    ] {
        let archive = Archive::root().pax(&[("path", given)]).file("x", 0o644, b"x");
        let refusal = Lab::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "{refusal}");
    }
    let refusal = Lab::new().refusal(&Archive::root().long_name(b"etc/pass\0wd").file("x", 0o644, b"x").end());
    assert!(refusal.contains("NUL"), "{refusal}");
    let refusal = Lab::new().refusal(&Archive::root().long_name(&[b'a'; 5000]).file("x", 0o644, b"x").end());
    assert!(refusal.contains("absurdly large"), "{refusal}");
    // The longest that fit do import.
    let lab = Lab::new();
    let archive = Archive::root()
        .long_name(&[b'a'; 255])
        .file("x", 0o644, b"x")
        .pax(&[("path", &b"d/".repeat(128))])
        .directory("x", 0o755);
    lab.import(&archive.end()).unwrap();
    assert!(lab.inside(&"a".repeat(255)).is_file() && lab.inside(&"d/".repeat(128)).is_dir());
}

#[test]
fn names_cannot_write_to_the_terminal() {
    let refusal = Lab::new().refusal(&Archive::root().file("../\x1b]0;owned\x07", 0o644, b"x").end());
    assert!(!refusal.contains('\x1b') && !refusal.contains('\x07'), "{refusal:?}");
}

#[test]
fn a_newline_in_a_pax_value_is_part_of_it() {
    let lab = Lab::new();
    let sly = "etc/a\n14 path=etc/b";
    lab.import(&Archive::root().pax(&[("path", sly.as_bytes())]).file("x", 0o644, b"x").end()).unwrap();
    assert!(lab.inside(sly).is_file() && !lab.inside("etc/b").exists());
}

#[test]
fn mount_points_must_be_directories() {
    for place in ["dev", "proc", "sys", "tmp", "etc", "workspace", "run", "home"] {
        for (kind, found) in [(b'2', "a symbolic link"), (b'0', "a file"), (b'3', "a device"), (b'6', "a pipe")] {
            let lab = Lab::new();
            let archive =
                Archive::default().file("busybox", 0o755, b"").entry(kind, place.as_bytes(), b"/usr", 0o755, b"");
            let refusal = lab.refusal(&archive.end());
            assert!(refusal.contains(&format!("`/{place}`")) && refusal.contains(found), "{refusal}");
        }
        let archive = Archive::default().file("busybox", 0o755, b"").hard_link(&format!("./{place}"), "busybox");
        assert!(Lab::new().refusal(&archive.end()).contains("a hard link"));
        // Deeper down the same name is nothing special.
        Lab::new().import(&Archive::root().symlink(&format!("usr/{place}"), "/x").end()).unwrap();
    }
}

#[test]
fn the_content_of_dev_is_dropped_however_it_gets_there() {
    let lab = Lab::new();
    let archive = Archive::root()
        .directory("dev/", 0o755)
        .entry(b'3', b"dev/null", b"", 0o666, b"")
        .symlink("dev/pts", "/proc/self/root")
        .file("dev/planted", 0o644, b"x")
        .symlink("side", "dev")
        .file("side/through/planted", 0o644, b"x");
    let info = lab.import(&archive.end()).unwrap();
    assert_eq!(fs::read_dir(lab.inside("dev")).unwrap().count(), 0);
    assert_eq!((info.skipped.dev_content, info.skipped.devices), (4, 0));
}

#[test]
fn devices_pipes_and_strange_types_are_left_out_and_counted() {
    let lab = Lab::new();
    let archive = Archive::root()
        .entry(b'3', b"usr/char", b"", 0o666, b"")
        .entry(b'4', b"usr/block", b"", 0o666, b"")
        .entry(b'6', b"usr/pipe", b"", 0o666, b"")
        .entry(b'V', b"volume", b"", 0o666, b"")
        .entry(b'z', b"usr/strange", b"", 0o666, b"content that is passed over")
        .entry(b'g', b"pax_global_header", b"", 0o666, &super::pax_record("comment", b"hello"))
        .file("usr/after", 0o644, b"x");
    let skipped = lab.import(&archive.end()).unwrap().skipped;
    assert_eq!((skipped.devices, skipped.pipes, skipped.unknown), (2, 1, 3));
    for absent in ["usr/char", "usr/block", "usr/pipe", "usr/strange", "volume"] {
        assert!(fs::symlink_metadata(lab.inside(absent)).is_err(), "{absent}");
    }
    assert!(lab.inside("usr/after").is_file());
}
