//! From nothing to an image and back: what is visible when, and what is left.

use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{Archive, Lab, name};
use crate::image::{ImageError, ImageInfo};

#[test]
fn a_taken_name_is_refused_before_the_archive_is_read() {
    let lab = Lab::new();
    let first = lab.import(&Archive::root().end()).unwrap();
    let again = lab.store.import(&name("box"), "b.tar", b"not even an archive".as_slice(), &mut |_| {});
    let error = again.expect_err("imported twice");
    assert_eq!(error.to_string(), "an image named `box` exists");
    assert!(error.hint().contains("ringwall image rm box"));
    assert_eq!(lab.store.list().unwrap(), [first]);
}

#[test]
fn a_name_taken_meanwhile_is_refused_at_the_rename() {
    let lab = Lab::new();
    let mut nested = None;
    let archive = Archive::root().end();
    let outcome = lab.store.import(&name("box"), "slow.tar", archive.as_slice(), &mut |_| {
        nested.get_or_insert_with(|| lab.store.import(&name("box"), "fast.tar", archive.as_slice(), &mut |_| {}));
    });
    assert!(matches!(outcome, Err(ImageError::Exists { .. })), "{outcome:?}");
    assert_eq!(nested.unwrap().unwrap().source, "fast.tar");
    assert_eq!(lab.names(), [".lock", "box"]);
    lab.check();
}

#[test]
fn an_import_is_invisible_until_it_is_whole() {
    let lab = Lab::new();
    lab.store
        .import(&name("box"), "a.tar", Archive::root().end().as_slice(), &mut |_| {
            assert!(lab.store.list().unwrap().is_empty());
            assert!(matches!(lab.store.find(&name("box")), Err(ImageError::Unknown { .. })));
        })
        .unwrap();
    assert_eq!(lab.store.list().unwrap().len(), 1);
}

#[test]
fn what_the_dead_left_is_swept_and_what_the_living_hold_is_not() {
    let lab = Lab::new();
    for left in [".importing-1-dead/rootfs/deep", ".removing-1-dead/rootfs", ".importing-1-alive/rootfs"] {
        fs::create_dir_all(lab.images().join(left)).unwrap();
    }
    symlink(lab.outside(""), lab.images().join(".importing-1-dead/rootfs/door")).unwrap();
    symlink(lab.outside(""), lab.images().join(".importing-link")).unwrap();
    let alive = File::open(lab.images().join(".importing-1-alive")).unwrap();
    alive.lock().unwrap();
    lab.store.import(&name("box"), "a.tar", Archive::root().end().as_slice(), &mut |_| {}).unwrap();
    assert!(lab.intact());
    assert_eq!(lab.names(), [".importing-1-alive", ".importing-link", ".lock", "box"]);
    fs::remove_file(lab.images().join(".importing-link")).unwrap();
    drop(alive);
    lab.store.import(&name("second"), "a.tar", Archive::root().end().as_slice(), &mut |_| {}).unwrap();
    lab.check();
}

#[test]
fn removing_follows_nothing_and_minds_no_mode() {
    let lab = Lab::new();
    lab.import(&Archive::root().symlink("door", lab.outside("").to_str().unwrap()).end()).unwrap();
    symlink(lab.outside("canary"), lab.inside("etc/door")).unwrap();
    fs::create_dir_all(lab.inside("var/moved-1/moved-2")).unwrap();
    fs::create_dir_all(lab.inside("moved-1")).unwrap();
    for path in ["var/moved-1/moved-2", "var/moved-1", "var", "etc"] {
        fs::set_permissions(lab.inside(path), Permissions::from_mode(0o000)).unwrap();
    }
    lab.store.remove(&name("box")).unwrap();
    lab.check();
    assert_eq!(lab.names(), [".lock"]);
    assert!(lab.store.list().unwrap().is_empty());
}

#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    // Each link leads to the bottom of the level before, so that short names build a tree thousands deep. Not more than 20
    // of them: the kernel gives up after 40, and counts those of a look-up twice that others on the machine disturbed.
    let lab = Lab::new();
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
    lab.import(&archive.end()).unwrap();
    lab.store.remove(&name("box")).unwrap();
    lab.check();
    assert_eq!(lab.names(), [".lock"]);
}

#[test]
fn a_held_image_stays() {
    let lab = Lab::new();
    lab.import(&Archive::root().end()).unwrap();
    let first = lab.store.hold(&name("box")).unwrap();
    let second = lab.store.hold(&name("box")).unwrap();
    assert_eq!(first.path(), lab.inside("."));
    assert!(rustix::fs::statat(first.as_fd(), "usr/bin/sh", rustix::fs::AtFlags::empty()).is_ok());
    drop(first);
    assert!(matches!(lab.store.remove(&name("box")), Err(ImageError::InUse { .. })));
    assert!(lab.inside("usr/bin/sh").is_file());
    drop(second);
    lab.store.remove(&name("box")).unwrap();
    assert!(matches!(lab.store.hold(&name("box")), Err(ImageError::Unknown { .. })));
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let lab = Lab::new();
    let error = lab.store.remove(&name("none")).expect_err("removed nothing");
    assert!(error.hint().contains("no image was imported yet"));
    for known in ["debian", "alpine"] {
        lab.store.import(&name(known), "a.tar", Archive::root().end().as_slice(), &mut |_| {}).unwrap();
    }
    for error in [
        lab.store.remove(&name("none")).expect_err("removed nothing"),
        lab.store.find(&name("none")).expect_err("found nothing"),
    ] {
        assert_eq!(error.to_string(), "there is no image named `none`");
        assert_eq!(error.hint(), "known images: alpine, debian");
    }
}

#[test]
fn the_description_is_stored_and_a_broken_one_is_named() {
    let lab = Lab::new();
    let info = lab.import(&Archive::root().end()).unwrap();
    let path = lab.images().join("box/image.json");
    let stored: ImageInfo = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(stored, info);
    assert_eq!(fs::read_dir(lab.images().join("box")).unwrap().count(), 2);
    fs::write(&path, "{").unwrap();
    let error = lab.store.list().expect_err("listed a broken description");
    assert!(error.hint().contains("ringwall image rm box"));
    lab.store.remove(&name("box")).unwrap();
}
