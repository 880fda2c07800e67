//! An exec from its creation to its manifest, and what can be read at each stage.

use std::fs;
use std::io::Read;

use ringwall_ids::ExecId;
use ringwall_workspace::{Error, Extent, Processes, Stream};
use serde_json::json;

use crate::fixture::{Fixture, MIB, names, own_by_box, path, paths};

/// SHA-256 of nothing, and of `out`.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const OUT: &str = "762069bc07a6e1b5df123a5ae7bd91c10daa04694fbaa17fba0cd6a8dcce8f22";

#[test]
fn ended_exec_has_four_server_files_and_artifacts() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let exec = files.exec().clone();
    files.output(Stream::Stdout).append(b"out").unwrap();
    fs::create_dir_all(files.artifacts().unwrap().path().join("sub/deeper")).unwrap();
    fs::create_dir(files.artifacts().unwrap().path().join("empty")).unwrap();
    fs::write(files.artifacts().unwrap().path().join("sub/deeper/result.txt"), "42").unwrap();
    fs::write(files.artifacts().unwrap().path().join("out.txt"), "out").unwrap();
    own_by_box(files.artifacts().unwrap().path());
    let collected = files.collect(MIB, Processes::Dead).unwrap();
    assert_eq!(paths(collected.kept()), ["out.txt", "sub/deeper/result.txt"]);
    assert_eq!((collected.extent(), collected.skipped_total()), (Extent::Within, 0));
    let finished = collected.finish(&json!({"exec_id": exec.as_str(), "status": "SUCCEEDED"})).unwrap();

    let expected = ["meta.json", "out.txt", "stderr.txt", "stdout.txt", "sub/deeper/result.txt"];
    assert_eq!(paths(&finished), expected);
    assert_eq!(fixture.project.artifacts(&exec).unwrap(), finished);
    let hash = |name: &str| finished.iter().find(|file| file.path.as_str() == name).unwrap().hash.clone();
    assert_eq!((hash("stdout.txt"), hash("out.txt"), hash("stderr.txt")), (OUT.into(), OUT.into(), EMPTY.into()));

    let location = fixture.host_path(&format!("projects/p/artifacts/{exec}"));
    assert_eq!(names(&location), ["manifest.json", "meta.json", "out.txt", "stderr.txt", "stdout.txt", "sub"]);
    assert_eq!(fs::read_to_string(location.join("sub/deeper/result.txt")).unwrap(), "42");
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(location.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest, json!({ "files": finished }));
    assert_eq!(manifest["files"][1], json!({"path": "out.txt", "size": 3, "hash": OUT}));
    assert!(fixture.staged().is_empty());
    assert_eq!(names(&fixture.host_path("")), [".staging", "projects"]);
    assert_eq!(names(&fixture.host_path("projects/p")), ["artifacts", "inputs", "work"]);
    fixture.check();

    // The list is rebuilt if a power cut emptied or removed the manifest.
    for lost in [Some(""), None] {
        match lost {
            Some(content) => fs::write(location.join("manifest.json"), content).unwrap(),
            None => fs::remove_file(location.join("manifest.json")).unwrap(),
        }
        assert_eq!(fixture.project.artifacts(&exec).unwrap(), finished);
    }
}

#[test]
fn running_exec_can_be_read() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let exec = files.exec().clone();
    files.output(Stream::Stderr).append(b"careful").unwrap();
    let part = fixture.project.read_output(&exec, Stream::Stderr, 4, 2).unwrap();
    assert_eq!((part.bytes.as_slice(), part.total), (&b"fu"[..], 7));
    let part = fixture.project.read_output(&exec, Stream::Stdout, 0, 100).unwrap();
    assert_eq!((part.bytes.as_slice(), part.total), (&b""[..], 0));
    assert_eq!(fixture.project.read_output(&exec, Stream::Stderr, 100, usize::MAX).unwrap().bytes, b"");
    assert_eq!(paths(&fixture.project.artifacts(&exec).unwrap()), ["stderr.txt", "stdout.txt"]);

    let mut content = String::new();
    let mut artifact = fixture.project.open_artifact(&exec, &path("stderr.txt")).unwrap();
    artifact.file.read_to_string(&mut content).unwrap();
    assert_eq!((content.as_str(), artifact.size), ("careful", 7));
}

#[test]
fn missing_files_are_reported() {
    let fixture = Fixture::new();
    let unknown = ExecId::random().unwrap();
    assert!(matches!(fixture.project.artifacts(&unknown), Err(Error::ExecMissing(_))));
    assert!(matches!(fixture.project.read_output(&unknown, Stream::Stdout, 0, 1), Err(Error::ExecMissing(_))));
    let files = fixture.begin();
    for name in ["nothing", "stdout.txt/below", "nothing/below"] {
        let missing = fixture.project.open_artifact(files.exec(), &path(name));
        assert!(matches!(missing, Err(Error::ArtifactMissing { .. })), "{name}: {missing:?}");
    }
    assert!(matches!(fixture.project.begin(files.exec()), Err(Error::ExecExists(_))));
    // The failed call did not change the exec with this id.
    files.output(Stream::Stdout).append(b"x").unwrap();
    assert_eq!(files.collect(0, Processes::Dead).unwrap().finish(&json!({})).unwrap().len(), 3);
    let other = fixture.workspace.find_project(&"other".parse().unwrap());
    assert!(matches!(other, Err(Error::ProjectMissing(_))));
    assert_eq!(names(&fixture.host_path("projects")), ["p"]);
}

#[test]
fn projects_can_be_created_concurrently() {
    let fixture = Fixture::new();
    let project = "shared".parse().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let project = fixture.workspace.project(&project).unwrap();
                    let files = project.begin(&ExecId::random().unwrap()).unwrap();
                    files.collect(0, Processes::Dead).unwrap().finish(&json!({})).unwrap();
                }
            });
        }
    });
    assert_eq!(names(&fixture.host_path("projects/shared/artifacts")).len(), 160);
    assert!(fixture.staged().is_empty());
}
