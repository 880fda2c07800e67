//! Removal and sweeps delete exactly what they should.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use ringwall_ids::ExecId;
use ringwall_workspace::{Error, Processes, Project, RecordEntry, Stream};
use serde_json::json;

use crate::fixture::{Fixture, MIB, input, names, own_by_box, paths};

#[test]
fn files_of_one_exec_are_removed() {
    let fixture = Fixture::new();
    let keep = fixture.begin();
    let kept = keep.exec().clone();
    keep.collect(0, Processes::Dead).unwrap().finish(&json!({})).unwrap();
    let files = fixture.begin();
    let exec = files.exec().clone();
    fs::create_dir_all(files.artifacts().unwrap().path().join("a/b")).unwrap();
    fs::write(files.artifacts().unwrap().path().join("a/b/c"), "x").unwrap();
    own_by_box(files.artifacts().unwrap().path());
    files.collect(MIB, Processes::Dead).unwrap().finish(&json!({})).unwrap();
    for _ in 0..2 {
        fixture.project.remove_artifacts(&exec).unwrap();
        assert_eq!(names(&fixture.host_path("projects/p/artifacts")), [kept.as_str()]);
    }
    assert!(matches!(fixture.project.artifacts(&exec), Err(Error::ExecMissing(_))));
    // An exec that was never collected.
    let abandoned = fixture.begin();
    fs::write(abandoned.artifacts().unwrap().path().join("x"), "x").unwrap();
    fixture.project.remove_artifacts(&abandoned.exec().clone()).unwrap();
    assert!(fixture.staged().is_empty());
    assert_eq!(fixture.project.artifacts(&kept).unwrap().len(), 3);
}

#[test]
fn project_is_removed_with_hostile_files() {
    let fixture = Fixture::new();
    let other = fixture.workspace.project(&"other".parse().unwrap()).unwrap();
    fixture.project.write_inputs(&ExecId::random().unwrap(), &[input("a/b", "x")]).unwrap();
    let work = fixture.project.work().path().to_owned();
    fs::create_dir_all(work.join("closed/inner/deep")).unwrap();
    fs::write(work.join("closed/inner/file"), "x").unwrap();
    symlink(fixture.outside(), work.join("away")).unwrap();
    symlink(fixture.outside(), work.join("closed/inner/away")).unwrap();
    own_by_box(&work);
    for closed in ["closed/inner/deep", "closed/inner", "closed", ""] {
        fs::set_permissions(work.join(closed), Permissions::from_mode(0o000)).unwrap();
    }
    let id = fixture.project.id().clone();
    for _ in 0..2 {
        fixture.workspace.remove_project(&id).unwrap();
        assert_eq!(names(&fixture.host_path("projects")), ["other"]);
    }
    assert!(fixture.staged().is_empty());
    // Old handles lead nowhere, and the new project is empty.
    assert!(fixture.project.begin(&ExecId::random().unwrap()).is_err());
    let again = fixture.workspace.project(&id).unwrap();
    assert!(names(again.inputs().path()).is_empty() && names(again.work().path()).is_empty());
    assert!(other.begin(&ExecId::random().unwrap()).is_ok());
    fixture.check();
}

#[test]
fn sweep_removes_leftovers_of_dead_execs_only() {
    let fixture = Fixture::new();
    let (dead, alive) = (fixture.begin(), fixture.begin());
    dead.output(Stream::Stdout).append(b"dead exec").unwrap();
    for files in [&dead, &alive] {
        fs::create_dir_all(files.artifacts().unwrap().path().join("a/b")).unwrap();
        fs::write(files.artifacts().unwrap().path().join("a/b/c"), "x").unwrap();
        symlink(fixture.outside(), files.artifacts().unwrap().path().join("away")).unwrap();
        fs::write(fixture.host_path(&format!(".staging/{}.input-0", files.exec())), "x").unwrap();
    }
    fs::create_dir_all(fixture.host_path(".staging/removed-0123/projects")).unwrap();
    fs::write(fixture.host_path(".staging/user's"), "not ours").unwrap();
    // Entries that are no workspaces: a file, and a directory whose `.staging` is a symlink.
    let root = fixture.directory.path().join("data/workspaces");
    fs::write(root.join("file"), "x").unwrap();
    let decoy = fixture.directory.path().join("data/workspaces/user/decoy");
    fs::create_dir(&decoy).unwrap();
    symlink(fixture.host_path(".staging"), decoy.join(".staging")).unwrap();

    let swept = fixture.workspaces.sweep(|exec| exec == alive.exec(), |_| RecordEntry::Unknown);
    assert_eq!((swept.removed, swept.failed), (3, 0), "{:?}", swept.first_failure);
    let mut left = vec![alive.exec().to_string(), format!("{}.input-0", alive.exec()), "user's".to_owned()];
    left.sort();
    assert_eq!(fixture.staged(), left);
    // Output of the dead exec can still be read.
    let part = fixture.project.read_output(dead.exec(), Stream::Stdout, 0, 100).unwrap();
    assert_eq!(part.bytes, b"dead exec");
    assert_eq!(fixture.project.artifacts(dead.exec()).unwrap().len(), 2);
    assert_eq!(fixture.workspaces.sweep(|_| false, |_| RecordEntry::Unknown).removed, 2);
    assert_eq!(fixture.workspaces.sweep(|_| false, |_| RecordEntry::Unknown).removed, 0);
    fixture.check();
}

/// A server may die after it created the files of an exec and before the exec is recorded.
#[test]
fn sweep_removes_output_of_unrecorded_exec() {
    let fixture = Fixture::new();
    let (unknown, lost, alive) = (fixture.begin(), fixture.begin(), fixture.begin());
    let swept = fixture.workspaces.sweep(
        |exec| exec == alive.exec(),
        |exec| {
            if exec == lost.exec() { RecordEntry::InProject("p".parse().unwrap()) } else { RecordEntry::Missing }
        },
    );
    assert_eq!((swept.removed, swept.failed), (2, 0), "{:?}", swept.first_failure);
    let kept = |exec: &ExecId| fixture.host_path(&format!("projects/p/artifacts/{exec}")).exists();
    assert!(!kept(unknown.exec()), "output of an unrecorded exec");
    assert!(kept(lost.exec()) && kept(alive.exec()));
    fixture.check();
}

const OUTPUT_ALONE: [&str; 2] = ["stderr.txt", "stdout.txt"];

fn has_meta(project: &Project, exec: &ExecId) -> bool {
    match project.open_artifact(exec, &"meta.json".parse().unwrap()) {
        Ok(_) => true,
        Err(Error::ArtifactMissing { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// For an exec whose box has no artifacts directory.
#[test]
fn hidden_output_is_readable_and_moved_at_finish() {
    let fixture = Fixture::new();
    let exec = ExecId::random().unwrap();
    let usage = || fixture.workspace.measure(u64::MAX).unwrap();
    let before = usage();
    let files = fixture.project.begin_output(&exec).unwrap();
    assert!(files.artifacts().is_none());
    assert!(matches!(fixture.project.begin_output(&exec), Err(Error::ExecExists(_))));
    files.output(Stream::Stdout).append(b"words").unwrap();
    assert_eq!(usage(), before, "output does not count as disk usage");
    let read = || fixture.project.read_output(&exec, Stream::Stdout, 0, 100).unwrap().bytes;
    assert_eq!(read(), b"words");
    assert_eq!(paths(&fixture.project.artifacts(&exec).unwrap()), OUTPUT_ALONE);
    assert!(!has_meta(&fixture.project, &exec), "created, but empty");
    let location = fixture.host_path(&format!("projects/p/artifacts/{exec}"));
    assert!(!location.exists());
    let collected = files.collect(MIB, Processes::Dead).unwrap();
    assert_eq!(collected.finish(&json!({})).unwrap().len(), 3);
    assert_eq!((read(), fixture.staged()), (b"words".to_vec(), Vec::new()));
    assert_eq!(names(&location), ["manifest.json", "meta.json", "stderr.txt", "stdout.txt"]);
    assert!(has_meta(&fixture.project, &exec));
    assert!(matches!(fixture.project.begin_output(&exec), Err(Error::ExecExists(_))), "the id was used");
    assert_eq!(read(), b"words", "unchanged by the failed call");
    fixture.project.remove_artifacts(&exec).unwrap();
    assert!(matches!(fixture.project.read_output(&exec, Stream::Stdout, 0, 1), Err(Error::ExecMissing(_))));
    // Output in `.staging` is removed in the same way.
    let hidden = fixture.project.begin_output(&exec).unwrap();
    fixture.project.remove_artifacts(hidden.exec()).unwrap();
    assert_eq!(fixture.staged(), [""; 0]);
    fixture.check();
}

/// A killed server leaves such output in `.staging`.
#[test]
fn sweep_moves_output_of_recorded_exec() {
    let fixture = Fixture::new();
    let begin = || fixture.project.begin_output(&ExecId::random().unwrap()).unwrap();
    let (lost, unknown, unclear, alive, homeless) = (begin(), begin(), begin(), begin(), begin());
    let recorded = |exec: &ExecId| match exec {
        exec if exec == lost.exec() => RecordEntry::InProject("p".parse().unwrap()),
        exec if exec == unclear.exec() => RecordEntry::Unknown,
        exec if exec == homeless.exec() => RecordEntry::InProject("gone".parse().unwrap()),
        _ => RecordEntry::Missing,
    };
    let swept = fixture.workspaces.sweep(|exec| exec == alive.exec(), recorded);
    assert_eq!((swept.removed, swept.failed), (2, 0), "{:?}", swept.first_failure);
    let mut left = [unclear.exec(), alive.exec()].map(|exec| format!("{exec}.output"));
    left.sort();
    assert_eq!(fixture.staged(), left);
    assert!(fixture.host_path(&format!("projects/p/artifacts/{}", lost.exec())).is_dir());
    assert_eq!(paths(&fixture.project.artifacts(lost.exec()).unwrap()), OUTPUT_ALONE);
    assert!(!has_meta(&fixture.project, lost.exec()), "the exec was not finished");
    assert!(fixture.project.read_output(unknown.exec(), Stream::Stdout, 0, 1).is_err());
    fixture.check();
}

#[test]
fn exec_id_cannot_be_used_twice() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    assert!(matches!(fixture.project.begin(files.exec()), Err(Error::ExecExists(_))));
    assert_eq!(fixture.staged(), [files.exec().to_string()], "the box's directory was removed");
    fs::remove_dir(fixture.host_path(&format!(".staging/{}", files.exec()))).unwrap();
    assert!(matches!(fixture.project.begin(files.exec()), Err(Error::ExecExists(_))));
    assert_eq!(fixture.staged(), [""; 0], "the failed call left files");
    fixture.project.read_output(files.exec(), Stream::Stdout, 0, 1).unwrap();
}
