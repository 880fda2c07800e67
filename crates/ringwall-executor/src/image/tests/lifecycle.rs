//! Life cycle of an image: when it is visible, and what remains.

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{Archive, Fixture, name};
use crate::image::{ImageError, ImageInfo};

#[test]
fn existing_name_is_refused_before_reading() {
    let fixture = Fixture::new();
    let first = fixture.import(&Archive::root().end()).unwrap();
    let again = fixture.store.import(&name("box"), "b.tar", b"not even an archive".as_slice(), &mut |_| {});
    let error = again.expect_err("imported twice");
    assert_eq!(error.to_string(), "an image named `box` exists");
    assert!(error.hint().contains("ringwall image rm box"));
    assert_eq!(fixture.store.list().unwrap(), [first]);
}

#[test]
fn name_taken_during_import_is_refused() {
    let fixture = Fixture::new();
    let mut nested = None;
    let archive = Archive::root().end();
    let outcome = fixture.store.import(&name("box"), "slow.tar", archive.as_slice(), &mut |_| {
        nested.get_or_insert_with(|| fixture.store.import(&name("box"), "fast.tar", archive.as_slice(), &mut |_| {}));
    });
    assert!(matches!(outcome, Err(ImageError::Exists { .. })), "{outcome:?}");
    assert_eq!(nested.unwrap().unwrap().source, "fast.tar");
    assert_eq!(fixture.names(), [".lock", "box"]);
    fixture.check();
}

#[test]
fn image_is_invisible_until_complete() {
    let fixture = Fixture::new();
    fixture
        .store
        .import(&name("box"), "a.tar", Archive::root().end().as_slice(), &mut |_| {
            assert!(fixture.store.list().unwrap().is_empty());
            assert!(matches!(fixture.store.find(&name("box")), Err(ImageError::Unknown { .. })));
        })
        .unwrap();
    assert_eq!(fixture.store.list().unwrap().len(), 1);
}

#[test]
fn unlocked_leftovers_are_removed_and_locked_ones_kept() {
    let fixture = Fixture::new();
    for left in [".importing-1-dead/rootfs/deep", ".removing-1-dead/rootfs", ".importing-1-alive/rootfs"] {
        fs::create_dir_all(fixture.images().join(left)).unwrap();
    }
    symlink(fixture.outside(""), fixture.images().join(".importing-1-dead/rootfs/door")).unwrap();
    symlink(fixture.outside(""), fixture.images().join(".importing-link")).unwrap();
    let alive = File::open(fixture.images().join(".importing-1-alive")).unwrap();
    alive.lock().unwrap();
    fixture.store.import(&name("box"), "a.tar", Archive::root().end().as_slice(), &mut |_| {}).unwrap();
    assert!(fixture.intact());
    assert_eq!(fixture.names(), [".importing-1-alive", ".importing-link", ".lock", "box"]);
    fs::remove_file(fixture.images().join(".importing-link")).unwrap();
    drop(alive);
    fixture.store.import(&name("second"), "a.tar", Archive::root().end().as_slice(), &mut |_| {}).unwrap();
    fixture.check();
}

#[test]
fn remove_follows_no_links_and_ignores_modes() {
    let fixture = Fixture::new();
    fixture.import(&Archive::root().symlink("door", fixture.outside("").to_str().unwrap()).end()).unwrap();
    symlink(fixture.outside("canary"), fixture.inside("etc/door")).unwrap();
    fs::create_dir_all(fixture.inside("var/moved-1/moved-2")).unwrap();
    fs::create_dir_all(fixture.inside("moved-1")).unwrap();
    for path in ["var/moved-1/moved-2", "var/moved-1", "var", "etc"] {
        fs::set_permissions(fixture.inside(path), Permissions::from_mode(0o000)).unwrap();
    }
    fixture.store.remove(&name("box")).unwrap();
    fixture.check();
    assert_eq!(fixture.names(), [".lock"]);
    assert!(fixture.store.list().unwrap().is_empty());
}

#[test]
fn tree_deeper_than_path_max_is_removed() {
    // Each link points to the bottom of the previous level, so that short names build a tree
    // thousands of directories deep. At most 20 links: the kernel fails after 40, and counts the
    // links of a lookup twice if a rename on the machine made it retry.
    let fixture = Fixture::new();
    let level = "d/".repeat(120);
    let archive = (0..18).fold(Archive::root(), |archive, at| {
        let (from, link) = match at {
            0 => (String::new(), "l0".to_owned()),
            _ => (format!("l{}/", at - 1), format!("l{at}")),
        };
        let bottom = format!("{from}{level}");
        archive
            .pax(&[("path", bottom.as_bytes())])
            .directory("x", 0o755)
            .pax(&[("path", link.as_bytes()), ("linkpath", bottom.as_bytes())])
            .symlink("x", "")
    });
    fixture.import(&archive.end()).unwrap();
    fixture.store.remove(&name("box")).unwrap();
    fixture.check();
    assert_eq!(fixture.names(), [".lock"]);
}

#[test]
fn held_image_cannot_be_removed() {
    let fixture = Fixture::new();
    fixture.import(&Archive::root().end()).unwrap();
    let first = fixture.store.hold(&name("box")).unwrap();
    let second = fixture.store.hold(&name("box")).unwrap();
    assert_eq!(first.path(), fixture.inside("."));
    assert!(rustix::fs::statat(first.as_fd(), "usr/bin/sh", rustix::fs::AtFlags::empty()).is_ok());
    drop(first);
    assert!(matches!(fixture.store.remove(&name("box")), Err(ImageError::InUse { .. })));
    assert!(fixture.inside("usr/bin/sh").is_file());
    drop(second);
    fixture.store.remove(&name("box")).unwrap();
    assert!(matches!(fixture.store.hold(&name("box")), Err(ImageError::Unknown { .. })));
}

#[test]
fn unknown_name_error_lists_known_images() {
    let fixture = Fixture::new();
    let error = fixture.store.remove(&name("none")).expect_err("removed nothing");
    assert!(error.hint().contains("no image was imported yet"));
    for known in ["debian", "alpine"] {
        fixture.store.import(&name(known), "a.tar", Archive::root().end().as_slice(), &mut |_| {}).unwrap();
    }
    for error in [
        fixture.store.remove(&name("none")).expect_err("removed nothing"),
        fixture.store.find(&name("none")).expect_err("found nothing"),
    ] {
        assert_eq!(error.to_string(), "there is no image named `none`");
        assert_eq!(error.hint(), "known images: alpine, debian");
    }
}

#[test]
fn description_is_stored_and_broken_one_is_reported() {
    let fixture = Fixture::new();
    let info = fixture.import(&Archive::root().end()).unwrap();
    let path = fixture.images().join("box/image.json");
    let stored: ImageInfo = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(stored, info);
    assert_eq!(fs::read_dir(fixture.images().join("box")).unwrap().count(), 2);
    fs::write(&path, "{").unwrap();
    let error = fixture.store.list().expect_err("listed a broken description");
    assert!(error.hint().contains("ringwall image rm box"));
    fixture.store.remove(&name("box")).unwrap();
}
