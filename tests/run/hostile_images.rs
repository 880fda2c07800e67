//! Hostile images are refused by the import, or have no effect if the stored image is changed afterwards.
//! Their links point at a canary file on the host, which must not change.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use tests::support::actor::Mode;
use tests::support::canary::Canary;

use crate::modes::in_both_modes;
use crate::product::assert_refused;
use crate::rootfs::Store;

in_both_modes!(
    hostile_archives_are_refused,
    links_in_an_image_resolve_inside_the_box,
    system_path_replaced_by_a_link_does_not_reach_the_host,
    system_directory_replaced_by_a_file_refuses_the_box,
    image_replaced_by_a_link_is_refused,
);

fn hostile_archives_are_refused(mode: Mode) {
    let store = Store::empty(mode);
    let outside = store.scratch.directory("outside").unwrap();
    let canary = Canary::plant(&store.scratch, "outside/canary").unwrap();
    let (out, target) = (outside.to_string_lossy(), canary.text());
    let archives = [
        ("climbs", json!([["../../../outside/canary", "file", "gone"]])),
        ("climbs-later", json!([["a/../../../../outside/canary", "file", "gone"]])),
        ("absolute", json!([[target, "file", "gone"]])),
        ("through-a-link", json!([["a", "link", out], ["a/canary", "file", "gone"]])),
        ("hard-link-out", json!([["a", "hard", target]])),
        ("hard-link-up", json!([["a", "hard", "../../../../outside/canary"]])),
        ("dev-is-a-link", json!([["dev", "link", out], ["bin", "directory", ""]])),
        ("proc-is-a-link", json!([["proc", "link", out]])),
        ("etc-is-a-link", json!([["etc", "link", out]])),
        ("workspace-is-a-link", json!([["workspace", "link", out]])),
    ];
    for (name, members) in archives {
        let archive = store.crafted_archive(&format!("{name}.tar"), &members.to_string());
        let outcome = store.image(&["import", name, archive.to_str().unwrap()]);
        assert_refused(&outcome, "ringwall: ");
        assert!(outcome.errors().contains("\n  hint: "), "{name}: {}", outcome.describe());
        assert!(!store.data().join("images").join(name).exists(), "{name} was kept");
        assert_eq!(canary.changed(), None, "{name}");
    }
}

/// Absolute links and links with `..` are common in a root file system. In the box they resolve below
/// its root.
fn links_in_an_image_resolve_inside_the_box(mode: Mode) {
    let store = Store::with_tiny(mode);
    store.scratch.directory("outside").unwrap();
    let canary = Canary::plant(&store.scratch, "outside/canary").unwrap();
    let root = store.rootfs("tiny");
    symlink(canary.path(), root.join("etc/absolute")).unwrap();
    symlink(format!("../../../../../../../../..{}", canary.text()), root.join("etc/climbing")).unwrap();
    let outcome = store.script("cat /etc/absolute /etc/climbing; echo x > /etc/absolute; echo x > /etc/climbing");
    assert!(!outcome.text().contains(canary.secret()), "{}", outcome.describe());
    assert_eq!(canary.changed(), None, "{}", outcome.describe());
}

/// Either the box is refused with an error, or the link resolves inside the box.
fn system_path_replaced_by_a_link_does_not_reach_the_host(mode: Mode) {
    for name in
        ["dev", "proc", "etc", "home", "home/sandbox", "tmp", "workspace", "etc/passwd", "dev/null", "dev/shm", "var"]
    {
        for depth in ["", "../../../../../../../.."] {
            let store = Store::with_tiny(mode);
            let outside = store.scratch.directory("outside").unwrap();
            let canary = Canary::plant(&store.scratch, "outside/canary").unwrap();
            let path = store.rootfs("tiny").join(name);
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else if path.symlink_metadata().is_ok() {
                fs::remove_file(&path).unwrap();
            }
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let target = if name == "etc/passwd" || name == "dev/null" { canary.path() } else { outside.as_path() };
            symlink(format!("{depth}{}", target.display()), &path).unwrap();
            let script = format!(
                "cat /{name} /{name}/canary; echo changed > /{name}; echo changed > /{name}/canary; \
                 echo new > /{name}/new; rm -rf /{name}/*; echo changed > {}",
                canary.text()
            );
            let outcome = store.script(&script);
            let case = format!("{name} -> {depth}…: {}", outcome.describe());
            assert_eq!(canary.changed(), None, "{case}");
            assert!(!outcome.text().contains(canary.secret()), "{case}");
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{case}");
            if outcome.code() == Some(2) && outcome.errors().starts_with("ringwall: ") {
                assert!(outcome.errors().starts_with("ringwall: could not "), "{case}");
                assert_eq!(outcome.text(), "", "{case}");
            }
        }
    }
}

fn system_directory_replaced_by_a_file_refuses_the_box(mode: Mode) {
    for name in ["dev", "proc", "etc", "tmp", "workspace"] {
        let store = Store::with_tiny(mode);
        let path = store.rootfs("tiny").join(name);
        let _ = fs::remove_dir_all(&path);
        fs::write(&path, "a file").unwrap();
        let outcome = store.script("echo ran");
        assert_refused(&outcome, "ringwall: could not build the root file system at ");
    }
}

fn image_replaced_by_a_link_is_refused(mode: Mode) {
    let store = Store::with_tiny(mode);
    let images = store.data().join("images");
    symlink("tiny", images.join("linked")).unwrap();
    assert_refused(&store.run(&["--image", "linked", "--", "/bin/echo", "ran"]), "there is no image named `linked`");
    fs::rename(store.rootfs("tiny"), store.scratch.join("moved")).unwrap();
    symlink(store.scratch.join("moved"), store.rootfs("tiny")).unwrap();
    let outcome = store.script("echo ran");
    assert_eq!(outcome.code(), Some(2), "{}", outcome.describe());
    assert_eq!(outcome.text(), "", "{}", outcome.describe());
}
