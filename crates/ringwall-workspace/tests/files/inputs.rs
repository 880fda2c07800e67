//! Inputs are written all or none, replaced atomically, and never through a symlink.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use ringwall_ids::ExecId;
use ringwall_workspace::{Error, Input};

use crate::fixture::{CANARY, Fixture, input, names, path};

fn write(fixture: &Fixture, inputs: &[Input]) -> Result<(), Error> {
    let written = fixture.project.write_inputs(&ExecId::random().unwrap(), inputs);
    assert!(fixture.staged().is_empty(), "left behind: {:?}", fixture.staged());
    fixture.check();
    written
}

#[test]
fn inputs_are_written_and_replaced() {
    let fixture = Fixture::new();
    write(&fixture, &[input("main.py", "print(1)"), input("a/b/c.txt", "deep"), input("a..b", "name")]).unwrap();
    write(&fixture, &[input("main.py", "2"), input("a/b/d.txt", "beside")]).unwrap();
    let location = fixture.host_path("projects/p/inputs");
    assert_eq!(fixture.project.inputs().path(), fs::canonicalize(&location).unwrap());
    assert_eq!(fs::read_to_string(location.join("main.py")).unwrap(), "2");
    assert_eq!(fs::read_to_string(location.join("a/b/c.txt")).unwrap(), "deep");
    assert_eq!(names(&location), ["a", "a..b", "main.py"]);
    // Readable for a box of another user, independent of the server's umask.
    for (name, mode) in [("main.py", 0o644), ("a/b/c.txt", 0o644), ("a/b", 0o755), ("a", 0o755), ("", 0o755)] {
        assert_eq!(fs::metadata(location.join(name)).unwrap().mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn one_bad_input_writes_none() {
    let fixture = Fixture::new();
    write(&fixture, &[input("file", "old"), input("directory/file", "old")]).unwrap();
    let location = fixture.host_path("projects/p/inputs");
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
        assert_eq!(write(&fixture, &inputs).unwrap_err().to_string(), format!("the input {message}"));
        assert_eq!(names(&location), ["directory", "file"]);
    }
    assert_eq!(fs::read_to_string(location.join("file")).unwrap(), "old");
}

#[test]
fn symlinks_among_inputs_are_not_followed() {
    let fixture = Fixture::new();
    let location = fixture.host_path("projects/p/inputs");
    symlink(fixture.outside(), location.join("away")).unwrap();
    symlink(fixture.outside().join("canary"), location.join("file")).unwrap();
    symlink("nowhere", location.join("dangling")).unwrap();
    symlink("loop", location.join("loop")).unwrap();
    // Control: opened by name, the path leads outside.
    assert_eq!(fs::read_to_string(location.join("away/canary")).unwrap(), CANARY);
    for name in ["away/canary", "away/new", "dangling/x", "loop/x"] {
        let error = write(&fixture, &[input("new", "1"), input(name, "x")]);
        assert!(matches!(error, Err(Error::InputBelowFile { .. })), "{name}: {error:?}");
    }
    assert_eq!(names(&location), ["away", "dangling", "file", "loop"]);
    // A symlink with the name of an input is replaced; its target is unchanged.
    write(&fixture, &[input("file", "mine"), input("dangling", "mine"), input("loop", "mine")]).unwrap();
    for name in ["file", "dangling", "loop"] {
        assert!(fs::symlink_metadata(location.join(name)).unwrap().is_file());
        assert_eq!(fs::read_to_string(location.join(name)).unwrap(), "mine");
    }
}

#[test]
fn concurrent_reader_sees_old_or_new_input() {
    let fixture = Fixture::new();
    let versions = ["a".repeat(100_000), "b".repeat(50_000)];
    write(&fixture, &[input("file", &versions[0])]).unwrap();
    let file = fixture.host_path("projects/p/inputs/file");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..200 {
                fixture
                    .project
                    .write_inputs(&ExecId::random().unwrap(), &[input("file", &versions[round % 2])])
                    .unwrap();
            }
        });
        while !writer.is_finished() {
            assert!(versions.contains(&fs::read_to_string(&file).unwrap()));
        }
    });
}

#[test]
fn longest_paths_are_written() {
    let fixture = Fixture::new();
    let name = "n".repeat(255);
    let longest = [name.as_str(); 15].join("/");
    write(&fixture, &[input(&longest, "deep")]).unwrap();
    let deepest = vec!["d"; 64].join("/");
    write(&fixture, &[input(&deepest, "deep")]).unwrap();
    assert_eq!(
        fs::read_to_string(fixture.host_path("projects/p/inputs").join(path(&longest).as_str())).unwrap(),
        "deep"
    );
}
