//! Inputs are written all or none, replaced atomically, and never through a symlink.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use ringwall_workspace::{Error, ExecId, Input};

use crate::lab::{CANARY, Lab, input, names, path};

fn write(lab: &Lab, inputs: &[Input]) -> Result<(), Error> {
    let written = lab.project.write_inputs(&ExecId::random().unwrap(), inputs);
    assert!(lab.staged().is_empty(), "left behind: {:?}", lab.staged());
    lab.check();
    written
}

#[test]
fn inputs_are_written_and_replaced() {
    let lab = Lab::new();
    write(&lab, &[input("main.py", "print(1)"), input("a/b/c.txt", "deep"), input("a..b", "name")]).unwrap();
    write(&lab, &[input("main.py", "2"), input("a/b/d.txt", "beside")]).unwrap();
    let place = lab.host("projects/p/inputs");
    assert_eq!(lab.project.inputs().path(), fs::canonicalize(&place).unwrap());
    assert_eq!(fs::read_to_string(place.join("main.py")).unwrap(), "2");
    assert_eq!(fs::read_to_string(place.join("a/b/c.txt")).unwrap(), "deep");
    assert_eq!(names(&place), ["a", "a..b", "main.py"]);
    // Readable for a box of another user, independent of the server's umask.
    for (name, mode) in [("main.py", 0o644), ("a/b/c.txt", 0o644), ("a/b", 0o755), ("a", 0o755), ("", 0o755)] {
        assert_eq!(fs::metadata(place.join(name)).unwrap().mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn one_bad_input_writes_none() {
    let lab = Lab::new();
    write(&lab, &[input("file", "old"), input("directory/file", "old")]).unwrap();
    let place = lab.host("projects/p/inputs");
    let refusals = [
        (
            vec![input("new", "1"), input("directory", "x")],
            "\"directory\" cannot be written: a directory has that name",
        ),
        (
            vec![input("new", "1"), input("file/x/y", "x")],
            "\"file/x/y\" cannot be written: \"file\" is not a directory",
        ),
        (vec![input("new", "1"), input("new/x", "x")], "\"new/x\" cannot be written: \"new\" is not a directory"),
        (vec![input("new", "1"), input("./new", "x")], "\"new\" is given twice"),
    ];
    for (inputs, message) in refusals {
        assert_eq!(write(&lab, &inputs).unwrap_err().to_string(), format!("the input {message}"));
        assert_eq!(names(&place), ["directory", "file"]);
    }
    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "old");
}

#[test]
fn symlinks_among_inputs_are_not_followed() {
    let lab = Lab::new();
    let place = lab.host("projects/p/inputs");
    symlink(lab.outside(), place.join("away")).unwrap();
    symlink(lab.outside().join("canary"), place.join("file")).unwrap();
    symlink("nowhere", place.join("dangling")).unwrap();
    symlink("loop", place.join("loop")).unwrap();
    // Control: opened by name, the path leads outside.
    assert_eq!(fs::read_to_string(place.join("away/canary")).unwrap(), CANARY);
    for name in ["away/canary", "away/new", "dangling/x", "loop/x"] {
        let error = write(&lab, &[input("new", "1"), input(name, "x")]);
        assert!(matches!(error, Err(Error::InputBelowFile { .. })), "{name}: {error:?}");
    }
    assert_eq!(names(&place), ["away", "dangling", "file", "loop"]);
    // A symlink with the name of an input is replaced; its target is unchanged.
    write(&lab, &[input("file", "mine"), input("dangling", "mine"), input("loop", "mine")]).unwrap();
    for name in ["file", "dangling", "loop"] {
        assert!(fs::symlink_metadata(place.join(name)).unwrap().is_file());
        assert_eq!(fs::read_to_string(place.join(name)).unwrap(), "mine");
    }
}

#[test]
fn concurrent_reader_sees_old_or_new_input() {
    let lab = Lab::new();
    let versions = ["a".repeat(100_000), "b".repeat(50_000)];
    write(&lab, &[input("file", &versions[0])]).unwrap();
    let file = lab.host("projects/p/inputs/file");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..200 {
                lab.project.write_inputs(&ExecId::random().unwrap(), &[input("file", &versions[round % 2])]).unwrap();
            }
        });
        while !writer.is_finished() {
            assert!(versions.contains(&fs::read_to_string(&file).unwrap()));
        }
    });
}

#[test]
fn longest_paths_are_written() {
    let lab = Lab::new();
    let name = "n".repeat(255);
    let longest = [name.as_str(); 15].join("/");
    write(&lab, &[input(&longest, "deep")]).unwrap();
    let deepest = vec!["d"; 64].join("/");
    write(&lab, &[input(&deepest, "deep")]).unwrap();
    assert_eq!(fs::read_to_string(lab.host("projects/p/inputs").join(path(&longest).as_str())).unwrap(), "deep");
}
