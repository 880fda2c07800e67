//! Symlinks, FIFOs, devices and hard links that a box or a privileged host process plants in a
//! workspace. The routes follow none, do not block, and change nothing outside. Controls show that
//! the planted files work outside of the server.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, FileType, Mode as Bits, RenameFlags, makedev, mknodat, renameat_with};
use tests::support::actor::{Mode, tester_is_root};
use tests::support::canary::Canary;
use tests::support::scratch::Scratch;

use crate::client::encode;
use crate::fixture::Fixture;
use crate::workspace::{Workspace, snapshot};

fn out_of_scope(path: &str) -> String {
    format!("Security Error: Access out of scope. Path: {path}")
}

/// Checks that every route rejects reads through `path` with the contract's text.
fn assert_unread(agent: &Workspace, path: &str) {
    assert_eq!(agent.content(path).expect_error(403), out_of_scope(path));
    assert_eq!(agent.page(path, "&offset=1").expect_error(403), out_of_scope(path));
    let route = format!("/v1/{}/download?path={}", agent.agent, encode(path));
    assert_eq!(agent.client.get(&route).expect_error(403), out_of_scope(path));
    assert_eq!(agent.edit(path, "canary", "x", None).expect_error(403), out_of_scope(path));
    if let Some(rest) = path.strip_prefix("files/") {
        let route = agent.sandbox_route(&format!("content?path={}", encode(rest)));
        assert!(agent.client.get(&route).expect_error(403).starts_with("Security Error: "));
        let route = agent.sandbox_route(&format!("edit?path={}&start=1", encode(rest)));
        assert!(agent.client.put(&route, "x").expect_error(403).starts_with("Security Error: "));
    }
}

pub(crate) fn symlink_out_of_files_is_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let canary = Canary::plant(&scratch, "canary").unwrap();
    let outside = canary.text();
    agent.put("files/a", "a");
    // Created in a box, where a path of the host is only text.
    agent.script(&format!(
        "cd files; ln -s {outside} absolute; ln -s ../../../../../../../../{outside} relative; ln -s {} parent; \
         ln -s absolute chained; ln -s ../../../.. up; ln -s /proc/self/root root; ln -s .. above",
        scratch.path().display()
    ));
    assert!(fs::read(agent.on_disk("files/absolute")).is_ok(), "control: the symlink leads to the canary");
    for path in ["files/absolute", "files/relative", "files/chained", "files/parent/canary", "files/up/x"] {
        assert_unread(&agent, path);
    }
    assert_unread(&agent, &format!("files/root{outside}"));
    for path in ["files/parent/new", "files/parent/canary", "files/parent/new/deep", "files/above/x"] {
        assert_eq!(agent.write(path, "x").expect_error(403), out_of_scope(path));
    }
    for path in ["files/parent/canary", "files/above/files"] {
        assert_eq!(agent.delete(path).expect_error(403), out_of_scope(path));
    }
    for path in ["files/parent", "files/up", "files/above"] {
        let listed = agent.list(path);
        assert!(listed.status == 403 || listed.data == serde_json::json!([]), "{path}: {listed:?}");
    }
    assert_eq!(agent.listed("files"), ["files/a"]);
    assert_eq!(canary.changed(), None);
    // A symlink itself may be deleted, and a write replaces the symlink, not its target.
    agent.delete("files/parent").success();
    let response = agent.write("files/absolute", "mine");
    if response.status == 200 {
        assert!(fs::symlink_metadata(agent.on_disk("files/absolute")).unwrap().is_file());
        assert_eq!(agent.text("files/absolute"), "mine");
    } else {
        response.expect_error(403);
    }
    let response = agent.upload("relative", b"mine");
    if response.status == 200 {
        assert!(fs::symlink_metadata(agent.on_disk("files/relative")).unwrap().is_file());
    } else {
        response.expect_error(403);
    }
    assert_eq!(canary.changed(), None);
}

pub(crate) fn symlink_within_files_is_readable(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/d/target", "inside");
    agent.put("skills/s/SKILL.md", "name: s\n");
    agent.script("cd files; ln -s d/target link; ln -s d into; ln -s loop loop; ln -s nowhere dangling");
    assert_eq!(agent.text("files/link"), "inside");
    assert_eq!(agent.text("files/into/target"), "inside");
    for path in ["files/loop", "files/dangling"] {
        agent.content(path).expect_error_of(&[400, 403, 404]);
    }
    // Writes follow no symlink, not even one within the files.
    for path in ["files/into/new", "files/into/target"] {
        assert_eq!(agent.write(path, "x").expect_error(403), out_of_scope(path));
    }
    assert_eq!(agent.edit("files/link", "inside", "x", None).expect_error(403), out_of_scope("files/link"));
    assert_eq!(agent.text("files/d/target"), "inside");
    // Deleting a symlink keeps its target.
    agent.delete("files/into").success();
    agent.delete("files/dangling").success();
    agent.delete("files/loop").success();
    assert_eq!(agent.listed("files"), ["files/d/target"]);
}

pub(crate) fn hard_link_to_outside_file_is_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/a", "a");
    agent.script("cd files; ln a b");
    // Both hard links are in the workspace.
    assert_eq!(agent.text("files/b"), "a");
    // Only the host can create this hard link, which needs the same file system and owner.
    let about = fs::metadata(agent.on_disk("files/a")).unwrap();
    let elsewhere = agent.client.data().join("workspaces").join(format!("canary-of-{}", agent.user));
    let canary = Canary::plant_at(elsewhere, (about.uid(), about.gid())).unwrap();
    fs::hard_link(canary.path(), agent.on_disk("files/second")).unwrap();
    let before = fs::read(canary.path()).unwrap();
    for response in [
        agent.content("files/second"),
        agent.page("files/second", "&offset=1"),
        agent.client.get(&format!("/v1/{}/download?path=files/second", agent.agent)),
        agent.edit("files/second", "canary", "x", None),
        agent.client.get(&agent.sandbox_route("content?path=second")),
        agent.client.put(&agent.sandbox_route("edit?path=second&start=1"), "x"),
    ] {
        assert!(response.expect_error(403).starts_with("Security Error: "));
    }
    agent.write("files/second", "mine");
    assert_eq!(fs::read(canary.path()).unwrap(), before);
    let _ = agent.delete("files/second");
    fs::remove_file(canary.path()).unwrap();
}

pub(crate) fn special_files_are_rejected_without_blocking(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.script("cd files; mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'");
    assert!(fs::symlink_metadata(agent.on_disk("files/pipe")).unwrap().file_type().is_fifo(), "control");
    let mut paths = vec!["files/pipe", "files/socket"];
    if tester_is_root() {
        // `/dev/zero` never ends, and `/dev/mem` contains the memory of the host.
        for (name, major, minor) in [("device", 1, 5), ("memory", 1, 1)] {
            let bits = Bits::from_raw_mode(0o666);
            let path = agent.on_disk("files").join(name);
            mknodat(CWD, &path, FileType::CharacterDevice, bits, makedev(major, minor)).unwrap();
            set_workspace_owner(&agent, &path);
        }
        paths.extend(["files/device", "files/memory"]);
    }
    for path in paths {
        agent.content(path).expect_error_of(&[400, 403]);
        agent.page(path, "&offset=1&limit=1").expect_error_of(&[400, 403]);
        agent.edit(path, "a", "b", None).expect_error_of(&[400, 403]);
        agent.client.get(&format!("/v1/{}/download?path={path}", agent.agent)).expect_error_of(&[400, 403]);
        let name = path.strip_prefix("files/").unwrap();
        agent.client.get(&agent.sandbox_route(&format!("content?path={name}"))).expect_error_of(&[400, 403]);
        agent.client.put(&agent.sandbox_route(&format!("edit?path={name}&start=1")), "x").expect_error_of(&[400, 403]);
    }
    assert_eq!(agent.listed("files"), [""; 0]);
    agent.delete("files/pipe").success();
    agent.delete("files/socket").success();
}

/// A directory and a symlink to another directory are exchanged in a loop while the routes use
/// them.
pub(crate) fn swapped_symlinks_leak_nothing(fixture: &Fixture) {
    let agent = fixture.workspace();
    let scratch = Scratch::new(fixture.mode().identity()).unwrap();
    let canary = Canary::plant(&scratch, "inside").unwrap();
    agent.put("files/d/inside", "mine");
    agent.put("files/d/sub/x", "x");
    let (directory, link) = (agent.on_disk("files/d"), agent.on_disk("files/swapped"));
    symlink(scratch.path(), &link).unwrap();
    let (is_over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = if is_soak() { 20_000 } else { 400 };
    let before = snapshot(scratch.path());
    let (mut read, mut rejected) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // Recreated after a deletion, so that the race continues.
                if renameat_with(CWD, &directory, CWD, &link, RenameFlags::EXCHANGE).is_ok() {
                    swaps.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let _ = fs::create_dir(&directory);
                set_workspace_owner(&agent, &directory);
                let _ = symlink(scratch.path(), &link);
            }
        });
        for round in 0..rounds {
            for path in ["files/d/inside", "files/swapped/inside"] {
                let response = agent.content(path);
                match response.status {
                    200 => {
                        read += 1;
                        assert!(!response.data.to_string().contains("canary"), "{response:?}");
                    }
                    403 | 404 => rejected += 1,
                    _ => panic!("{response:?}"),
                }
            }
            let path = format!("files/d/new{}", round % 8);
            let response = agent.write(&path, "mine");
            assert!(matches!(response.status, 200 | 400 | 403 | 404 | 409), "{response:?}");
            if round % 8 == 0 {
                agent.delete("files/d/sub");
                agent.write("files/d/inside", "mine");
                let listed = agent.list("files/d");
                assert!(!listed.data.to_string().contains("canary"), "{listed:?}");
            }
            if round % 32 == 0 {
                agent.delete(if round % 64 == 0 { "files/d" } else { "files/swapped" });
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let swaps = swaps.into_inner();
    println!("{swaps} swaps, {read} reads and {rejected} rejections, nothing leaked");
    assert!(swaps > 0 && rejected > 0, "the race did not happen: {swaps} swaps, {rejected} rejections");
    assert_eq!(snapshot(scratch.path()), before);
    assert_eq!(canary.changed(), None);
}

/// As root each workspace has a uid of its own, which owns everything in it.
pub(crate) fn files_belong_to_workspace_owner(fixture: &Fixture) {
    let (one, two) = (fixture.workspace(), fixture.workspace());
    for agent in [&one, &two] {
        agent.put("files/d/x", "x");
        agent.upload("y", b"y").success();
        agent.push(&crate::zips::skill("s", "1")).success();
        agent.script("echo inside > files/z; echo more >> files/d/x; echo more >> files/y; echo 2 > skills/s/main.py");
        agent.edit("files/z", "inside", "outside", None).success();
        assert_eq!(agent.text("files/d/x"), "xmore\n");
        assert_eq!(agent.text("files/z"), "outside\n");
        let owners: std::collections::BTreeSet<u32> =
            ["files/d", "files/d/x", "files/y", "files/z", "skills/s", "skills/s/main.py", "skills/s/SKILL.md"]
                .map(|path| fs::symlink_metadata(agent.on_disk(path)).unwrap().uid())
                .into();
        assert_eq!(owners.len(), 1, "{owners:?}");
    }
    let uid = |agent: &Workspace| fs::metadata(agent.on_disk("files/z")).unwrap().uid();
    match fixture.mode() {
        Mode::Root => assert!(uid(&one) != uid(&two) && uid(&one) != 0),
        Mode::Rootless => assert_eq!(uid(&one), fixture.mode().identity().id().0),
    }
}

/// Makes the workspace's owner the owner of a planted file, so that only its type can be the reason
/// of an error.
fn set_workspace_owner(agent: &Workspace, path: &Path) {
    let about = fs::metadata(agent.on_disk("files")).unwrap();
    let _ = std::os::unix::fs::lchown(path, Some(about.uid()), Some(about.gid()));
}

fn is_soak() -> bool {
    std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1")
}
