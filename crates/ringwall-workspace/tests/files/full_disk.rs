//! Operations on a full disk: they return an error, leave nothing partial, and succeed when there
//! is space again.
//!
//! The test runs itself again in its own user and mount namespaces with a tmpfs of 256 KiB.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ringwall_ids::ExecId;
use ringwall_workspace::{Error, Owner, Processes, Stream, Workspaces};
use serde_json::json;

use crate::fixture::{RECYCLED, input, names};

const SMALL: &str = "RINGWALL_TEST_SMALL_DISK";

#[test]
fn operations_on_full_disk_leave_nothing_partial() {
    if let Some(disk) = std::env::var_os(SMALL) {
        fill(&PathBuf::from(disk));
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=256k,mode=700 tmpfs \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--", "/bin/sh", "-c", script]).arg(disk.path());
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::operations_on_full_disk_leave_nothing_partial"]);
    let output = command.env(SMALL, disk.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok. 1 passed"), "{text}");
}

fn fill(disk: &std::path::Path) {
    let workspaces = Workspaces::open(&disk.join("workspaces")).unwrap();
    let workspace = workspaces.workspace(&"user".parse().unwrap(), &"agent".parse().unwrap(), Owner::server()).unwrap();
    let project = workspace.project(&"p".parse().unwrap()).unwrap();
    let staging = disk.join("workspaces/user/agent/.staging");
    let exec = || ExecId::random().unwrap();

    // Inputs: the first fits, the second does not; neither exists afterwards.
    let error = project.write_inputs(&exec(), &[input("small", "x"), input("large", &"x".repeat(400_000))]);
    assert!(matches!(error, Err(Error::WriteInput { ref path, .. }) if path.as_str() == "large"), "{error:?}");
    assert!(names(project.inputs().path()).is_empty() && names(&staging).is_empty());

    // Output: length and hash are those of the part that was written.
    let files = project.begin(&exec()).unwrap();
    assert!(files.output(Stream::Stdout).append(&vec![b'x'; 400_000]).is_err());
    let length = files.output(Stream::Stdout).length();
    assert!(length > 0 && length < 400_000, "{length}");
    let id = files.exec().clone();
    drop(files);
    project.remove_artifacts(&id).unwrap();
    // There is no space for a copy of the box's file: it is deleted, and its space is free again.
    let files = project.begin(&exec()).unwrap();
    let id = files.exec().clone();
    fs::write(files.artifacts().unwrap().path().join("result"), vec![b'y'; 150_000]).unwrap();
    assert!(matches!(files.collect(1 << 20, Processes::Dead), Err(Error::Collect { .. })));
    assert!(names(&staging).is_empty());
    assert!(project.artifacts(&id).is_ok());

    // Without space for its last two files an exec can be listed, and the next exec succeeds.
    let files = project.begin(&exec()).unwrap();
    let id = files.exec().clone();
    let filler = disk.join("filler");
    assert!(fs::write(&filler, vec![b'z'; 400_000]).is_err(), "the disk is not full");
    let error = files.collect(0, Processes::Dead).unwrap().finish(&json!({"status": "x".repeat(10_000)}));
    assert!(matches!(error, Err(Error::Finish { name: "meta.json", .. })), "{error:?}");
    assert!(names(&staging).iter().all(|name| name == RECYCLED));
    assert_eq!(project.artifacts(&id).unwrap().len(), 2);
    fs::remove_file(&filler).unwrap();
    let files = project.begin(&exec()).unwrap();
    assert_eq!(files.collect(0, Processes::Dead).unwrap().finish(&json!({})).unwrap().len(), 3);
}
