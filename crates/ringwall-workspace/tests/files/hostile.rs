//! Collection of hostile files, and descriptors that outlive their box.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use ringwall_workspace::{Error, Extent, PathProblem, Processes, SkipReason};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde_json::json;

use crate::fixture::{CANARY, Fixture, MIB, is_root, own_by_box, path, paths, reasons, set_owner};

fn make_fifo(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

#[test]
fn special_files_are_skipped() {
    let fixture = Fixture::new();
    let outside = fixture.outside();
    let collected = fixture.run(MIB, |directory| {
        symlink(outside.join("canary"), directory.join("link")).unwrap();
        symlink(&outside, directory.join("link-to-directory")).unwrap();
        symlink("nowhere", directory.join("link-dangling")).unwrap();
        symlink("link-loop", directory.join("link-loop")).unwrap();
        make_fifo(&directory.join("fifo"));
        UnixListener::bind(directory.join("socket")).unwrap();
        if is_root() {
            // `/dev/zero`, which has no end.
            let zero = rustix::fs::makedev(1, 5);
            rustix::fs::mknodat(CWD, directory.join("zero"), FileType::CharacterDevice, Mode::RWXU, zero).unwrap();
        }
        fs::write(directory.join("real"), "real").unwrap();
        // Control: opened by name, the symlink leads to the canary.
        assert_eq!(fs::read_to_string(directory.join("link")).unwrap(), CANARY);
    });
    assert_eq!(paths(collected.kept()), ["real"]);
    let mut expected = vec![
        ("fifo", SkipReason::Fifo),
        ("link", SkipReason::SymbolicLink),
        ("link-dangling", SkipReason::SymbolicLink),
        ("link-loop", SkipReason::SymbolicLink),
        ("link-to-directory", SkipReason::SymbolicLink),
        ("socket", SkipReason::Socket),
    ];
    if is_root() {
        expected.push(("zero", SkipReason::Device));
    }
    assert_eq!(reasons(&collected), expected);
    assert_eq!(collected.extent(), Extent::Within);
}

#[test]
fn reserved_names_are_skipped() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let exec = files.exec().clone();
    let directory = files.artifacts().unwrap().path();
    fs::write(directory.join("meta.json"), "forged").unwrap();
    fs::write(directory.join("manifest.json"), r#"{"files":[]}"#).unwrap();
    fs::create_dir(directory.join("stdout.txt")).unwrap();
    fs::write(directory.join("stdout.txt/x"), "forged").unwrap();
    symlink(fixture.outside().join("canary"), directory.join("stderr.txt")).unwrap();
    fs::create_dir(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/meta.json"), "its own").unwrap();
    own_by_box(directory);
    let collected = files.collect(MIB, Processes::Dead).unwrap();
    assert_eq!(
        reasons(&collected),
        [
            ("manifest.json", SkipReason::ReservedName),
            ("meta.json", SkipReason::ReservedName),
            ("stderr.txt", SkipReason::SymbolicLink),
            ("stdout.txt", SkipReason::ReservedName),
        ]
    );
    let finished = collected.finish(&json!({"real": true})).unwrap();
    assert_eq!(paths(&finished), ["meta.json", "stderr.txt", "stdout.txt", "sub/meta.json"]);
    assert_eq!(fixture.project.artifacts(&exec).unwrap(), finished);
    let location = fixture.host_path(&format!("projects/p/artifacts/{exec}"));
    assert_eq!(fs::read_to_string(location.join("meta.json")).unwrap(), r#"{"real":true}"#);
    assert_eq!(fs::metadata(location.join("stdout.txt")).unwrap().len(), 0);
    fixture.check();
}

#[test]
fn invalid_names_are_skipped() {
    let fixture = Fixture::new();
    let longest = "l".repeat(255);
    let collected = fixture.run(MIB, |directory| {
        for name in [&b"bad\xff"[..], b"back\\slash", b"new\nline", "\u{e9}".as_bytes(), b"..a", longest.as_bytes()] {
            fs::write(directory.join(OsStr::from_bytes(name)), name).unwrap();
        }
        let invalid = directory.join(OsStr::from_bytes(b"dir\xfe"));
        fs::create_dir(&invalid).unwrap();
        fs::write(invalid.join("inside"), "x").unwrap();
    });
    let kept = ["..a", longest.as_str(), "new\nline", "\u{e9}"];
    assert_eq!(paths(collected.kept()), kept);
    assert_eq!(
        reasons(&collected),
        [
            ("back\\slash", SkipReason::Name(PathProblem::Backslash)),
            ("bad\\xff", SkipReason::Name(PathProblem::NotUnicode)),
            ("dir\\xfe", SkipReason::Name(PathProblem::NotUnicode)),
        ]
    );
}

#[test]
fn very_deep_tree_is_skipped_and_removed() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    fs::write(files.artifacts().unwrap().path().join("top"), "kept").unwrap();
    let mut deepest: OwnedFd = File::open(files.artifacts().unwrap().path()).unwrap().into();
    for _ in 0..10_000 {
        rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).unwrap();
        deepest = rustix::fs::openat(&deepest, "d", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    set_owner(&files.artifacts().unwrap().path().join("top"));
    let collected = files.collect(MIB, Processes::Dead).unwrap();
    assert_eq!(paths(collected.kept()), ["top"]);
    let [skipped] = collected.skipped() else { panic!("{:?}", collected.skipped()) };
    assert_eq!(skipped.reason, SkipReason::Name(PathProblem::TooDeep));
    assert!(collected.residue().is_none() && fixture.staged().is_empty());
}

#[test]
fn closed_files_and_directories_are_collected() {
    let fixture = Fixture::new();
    let collected = fixture.run(MIB, |directory| {
        fs::create_dir(directory.join("closed")).unwrap();
        fs::create_dir(directory.join("closed/inner")).unwrap();
        fs::write(directory.join("closed/inner/file"), "x").unwrap();
        fs::write(directory.join("secret"), "y").unwrap();
        fs::write(directory.join("setuid"), "z").unwrap();
        own_by_box(directory);
        for (name, mode) in [("secret", 0o000), ("setuid", 0o6777), ("closed/inner", 0o000), ("closed", 0o000)] {
            fs::set_permissions(directory.join(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    });
    assert_eq!(paths(collected.kept()), ["closed/inner/file", "secret", "setuid"]);
    let finished = collected.finish(&json!({})).unwrap();
    assert_eq!(finished.len(), 6);
    for exec in fs::read_dir(fixture.host_path("projects/p/artifacts")).unwrap() {
        let mode = fs::metadata(exec.unwrap().path().join("setuid")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}

#[test]
fn closed_work_directory_is_reopened() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    fs::write(files.artifacts().unwrap().path().join("file"), "x").unwrap();
    own_by_box(files.artifacts().unwrap().path());
    for closed in [files.artifacts().unwrap().path(), fixture.project.work().path()] {
        fs::set_permissions(closed, Permissions::from_mode(0o000)).unwrap();
    }
    assert_eq!(paths(files.collect(MIB, Processes::Dead).unwrap().kept()), ["file"]);
    let project = fixture.workspace.project(&"p".parse().unwrap()).unwrap();
    assert_eq!(fs::metadata(project.work().path()).unwrap().permissions().mode() & 0o700, 0o700);
    assert!(fixture.staged().is_empty());
}

#[test]
fn open_descriptors_cannot_change_collected_files() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let exec = files.exec().clone();
    let directory = files.artifacts().unwrap().path().to_owned();
    fs::create_dir(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/file"), "honest").unwrap();
    own_by_box(&directory);
    // Another box of the project may have received these descriptors over a socket in `work`.
    let mut held = File::options().append(true).open(directory.join("sub/file")).unwrap();
    let held_directory = File::open(directory.join("sub")).unwrap();
    let finished = files.collect(MIB, Processes::Dead).unwrap().finish(&json!({})).unwrap();
    held.write_all(b" or not").unwrap();
    let planted = rustix::fs::symlinkat(fixture.outside().join("canary"), &held_directory, "planted");
    assert!(planted.is_err(), "the directory was deleted");
    assert_eq!(fixture.project.artifacts(&exec).unwrap(), finished);
    let location = fixture.host_path(&format!("projects/p/artifacts/{exec}/sub"));
    assert_eq!(fs::read_to_string(location.join("file")).unwrap(), "honest");
    assert_eq!(crate::fixture::names(&location), ["file"]);
}

#[test]
fn special_files_among_artifacts_are_not_opened() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let exec = files.exec().clone();
    // Only the server can write here; planted for the test.
    let location = fixture.host_path(&format!("projects/p/artifacts/{exec}"));
    fs::create_dir(location.join("directory")).unwrap();
    symlink(fixture.outside(), location.join("away")).unwrap();
    symlink(fixture.outside().join("canary"), location.join("link")).unwrap();
    make_fifo(&location.join("fifo"));
    UnixListener::bind(location.join("socket")).unwrap();
    assert_eq!(fs::read_to_string(location.join("away/canary")).unwrap(), CANARY);
    for name in ["directory", "away", "away/canary", "link", "fifo", "socket"] {
        let error = fixture.project.open_artifact(&exec, &path(name));
        assert!(matches!(error, Err(Error::ArtifactIrregular { .. })), "{name}: {error:?}");
    }
    assert_eq!(paths(&fixture.project.artifacts(&exec).unwrap()), ["stderr.txt", "stdout.txt"]);
}
