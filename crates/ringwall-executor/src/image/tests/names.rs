//! Unsafe names, and names on which a box mounts.

use std::fs;

use super::{Archive, Fixture};

#[test]
fn names_with_dot_dot_are_refused() {
    for climbing in ["../outside/canary", "usr/../../../../outside/canary", "..", "usr/.."] {
        let refusal = Fixture::new().refusal(&Archive::root().file(climbing, 0o644, b"x").end());
        assert!(refusal.contains("contains `..`"), "{climbing}: {refusal}");
    }
    let fixture = Fixture::new();
    let deep = "../../../../../../../outside/canary";
    let archive = Archive::root().pax(&[("path", deep.as_bytes())]).file("harmless", 0o644, b"x");
    assert!(fixture.refusal(&archive.end()).contains("contains `..`"));
    let archive = Archive::root().long_name(deep.as_bytes()).file("harmless", 0o644, b"x");
    assert!(fixture.refusal(&archive.end()).contains("contains `..`"));
}

#[test]
fn absolute_names_are_refused() {
    let fixture = Fixture::new();
    let target = fixture.outside("planted");
    let archive = Archive::root().pax(&[("path", target.to_str().unwrap().as_bytes())]).file("x", 0o644, b"x");
    assert!(fixture.refusal(&archive.end()).contains("is absolute"));
    assert!(!target.exists());
}

#[test]
fn too_long_or_invalid_names_are_refused() {
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
        let refusal = Fixture::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "{refusal}");
    }
    let refusal = Fixture::new().refusal(&Archive::root().long_name(b"etc/pass\0wd").file("x", 0o644, b"x").end());
    assert!(refusal.contains("NUL"), "{refusal}");
    let refusal = Fixture::new().refusal(&Archive::root().long_name(&[b'a'; 5000]).file("x", 0o644, b"x").end());
    assert!(refusal.contains("longer than"), "{refusal}");
    // The longest valid names are imported.
    let fixture = Fixture::new();
    let archive = Archive::root()
        .long_name(&[b'a'; 255])
        .file("x", 0o644, b"x")
        .pax(&[("path", &b"d/".repeat(128))])
        .directory("x", 0o755);
    fixture.import(&archive.end()).unwrap();
    assert!(fixture.inside(&"a".repeat(255)).is_file() && fixture.inside(&"d/".repeat(128)).is_dir());
}

#[test]
fn escape_sequences_in_names_are_not_printed() {
    let refusal = Fixture::new().refusal(&Archive::root().file("../\x1b]0;owned\x07", 0o644, b"x").end());
    assert!(!refusal.contains('\x1b') && !refusal.contains('\x07'), "{refusal:?}");
}

#[test]
fn newline_in_pax_value_is_kept() {
    let fixture = Fixture::new();
    let sly = "etc/a\n14 path=etc/b";
    fixture.import(&Archive::root().pax(&[("path", sly.as_bytes())]).file("x", 0o644, b"x").end()).unwrap();
    assert!(fixture.inside(sly).is_file() && !fixture.inside("etc/b").exists());
}

#[test]
fn mount_points_must_be_directories() {
    for place in ["dev", "proc", "sys", "tmp", "etc", "workspace", "run", "home"] {
        for (kind, found) in [(b'2', "a symbolic link"), (b'0', "a file"), (b'3', "a device"), (b'6', "a pipe")] {
            let fixture = Fixture::new();
            let archive =
                Archive::default().file("busybox", 0o755, b"").entry(kind, place.as_bytes(), b"/usr", 0o755, b"");
            let refusal = fixture.refusal(&archive.end());
            assert!(refusal.contains(&format!("`/{place}`")) && refusal.contains(found), "{refusal}");
        }
        let archive = Archive::default().file("busybox", 0o755, b"").hard_link(&format!("./{place}"), "busybox");
        assert!(Fixture::new().refusal(&archive.end()).contains("a hard link"));
        // Below the top level the same name is allowed.
        Fixture::new().import(&Archive::root().symlink(&format!("usr/{place}"), "/x").end()).unwrap();
    }
}

#[test]
fn content_of_dev_is_dropped_also_through_links() {
    let fixture = Fixture::new();
    let archive = Archive::root()
        .directory("dev/", 0o755)
        .entry(b'3', b"dev/null", b"", 0o666, b"")
        .symlink("dev/pts", "/proc/self/root")
        .file("dev/planted", 0o644, b"x")
        .symlink("side", "dev")
        .file("side/through/planted", 0o644, b"x");
    let info = fixture.import(&archive.end()).unwrap();
    assert_eq!(fs::read_dir(fixture.inside("dev")).unwrap().count(), 0);
    assert_eq!((info.skipped.dev_content, info.skipped.devices), (4, 0));
}

#[test]
fn devices_pipes_and_unknown_types_are_skipped_and_counted() {
    let fixture = Fixture::new();
    let archive = Archive::root()
        .entry(b'3', b"usr/char", b"", 0o666, b"")
        .entry(b'4', b"usr/block", b"", 0o666, b"")
        .entry(b'6', b"usr/pipe", b"", 0o666, b"")
        .entry(b'V', b"volume", b"", 0o666, b"")
        .entry(b'z', b"usr/strange", b"", 0o666, b"content that is passed over")
        .entry(b'g', b"pax_global_header", b"", 0o666, &super::pax_record("comment", b"hello"))
        .file("usr/after", 0o644, b"x");
    let skipped = fixture.import(&archive.end()).unwrap().skipped;
    assert_eq!((skipped.devices, skipped.pipes, skipped.unknown), (2, 1, 3));
    for absent in ["usr/char", "usr/block", "usr/pipe", "usr/strange", "volume"] {
        assert!(fs::symlink_metadata(fixture.inside(absent)).is_err(), "{absent}");
    }
    assert!(fixture.inside("usr/after").is_file());
}
