//! Owners and modes of directories and files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use ringwall_workspace::{Error, Owner, Processes, SkipReason, Stream, Workspaces};
use serde_json::json;

use crate::fixture::{Fixture, MIB, is_root, names, open, own_by_box, owner, reasons};

#[test]
fn box_owns_only_work_and_artifacts() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let (server, workspace) = (Owner::server(), owner());
    let exec = files.exec().to_string();
    for (location, owner, mode) in [
        ("", server, 0o711),
        (".staging", server, 0o711),
        ("projects", server, 0o711),
        ("projects/p", server, 0o711),
        ("projects/p/inputs", server, 0o755),
        ("projects/p/artifacts", server, 0o711),
        ("projects/p/work", workspace, 0o700),
        (&format!("projects/p/artifacts/{exec}"), server, 0o700),
        (&format!("projects/p/artifacts/{exec}/stdout.txt"), server, 0o600),
        (&format!(".staging/{exec}"), workspace, 0o700),
    ] {
        let status = fs::metadata(fixture.host_path(location)).unwrap();
        assert_eq!((status.uid(), status.gid()), (owner.uid, owner.gid), "{location}");
        assert_eq!(status.mode() & 0o7777, mode, "{location}");
    }
    let root = fixture.directory.path().join("data/workspaces");
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(
        files.artifacts().unwrap().path(),
        fs::canonicalize(fixture.host_path(&format!(".staging/{exec}"))).unwrap()
    );
    assert_eq!(fixture.project.work().path(), fs::canonicalize(fixture.host_path("projects/p/work")).unwrap());

    fs::write(files.artifacts().unwrap().path().join("out"), "x").unwrap();
    own_by_box(files.artifacts().unwrap().path());
    files.collect(MIB, Processes::Dead).unwrap().finish(&json!({})).unwrap();
    for name in names(&fixture.host_path(&format!("projects/p/artifacts/{exec}"))) {
        let status = fs::metadata(fixture.host_path(&format!("projects/p/artifacts/{exec}/{name}"))).unwrap();
        assert_eq!((status.uid(), status.mode() & 0o7777), (server.uid, 0o600), "{name}");
    }
}

#[test]
fn files_of_other_users_are_skipped() {
    if !is_root() {
        eprintln!("skipped: only root can create files of two users");
        return;
    }
    let fixture = Fixture::new();
    let files = fixture.begin();
    // Looks like a hard link to a file of the server, which a box cannot create.
    fs::hard_link(fixture.outside().join("canary"), files.artifacts().unwrap().path().join("alias")).unwrap();
    let collected = files.collect(MIB, Processes::Dead).unwrap();
    assert_eq!(reasons(&collected), [("alias", SkipReason::ForeignOwner)]);
    fixture.check();
}

#[test]
fn root_is_private_and_must_belong_to_server() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
    Workspaces::open(&root).unwrap();
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o7777, 0o700);
    // The root may be a symlink of the operator.
    symlink(&root, directory.path().join("link")).unwrap();
    let workspaces = Workspaces::open(&directory.path().join("link")).unwrap();
    let project = open(&workspaces).project(&"p".parse().unwrap()).unwrap();
    assert!(project.work().path().starts_with(fs::canonicalize(&root).unwrap()));
    if is_root() {
        std::os::unix::fs::lchown(&root, Some(owner().uid), None).unwrap();
        assert!(matches!(Workspaces::open(&root), Err(Error::RootForeign { .. })));
    }
    fs::write(directory.path().join("file"), "").unwrap();
    assert!(matches!(Workspaces::open(&directory.path().join("file")), Err(Error::OpenRoot { .. })));
}

#[test]
fn symlink_in_place_of_directory_is_rejected() {
    let fixture = Fixture::new();
    for location in ["projects/q", "projects/r/work", "projects/s/inputs", "projects/t/artifacts"] {
        fs::create_dir_all(fixture.host_path(location).parent().unwrap()).unwrap();
        symlink(fixture.outside(), fixture.host_path(location)).unwrap();
        let project = location.split('/').nth(1).unwrap().parse().unwrap();
        let error = fixture.workspace.project(&project);
        assert!(matches!(error, Err(Error::OpenDirectory { .. })), "{location}: {error:?}");
    }
    // A box cannot replace the directory of an exec; if it could, the symlink is not followed.
    let files = fixture.begin();
    let exec = files.exec().clone();
    fs::remove_dir(files.artifacts().unwrap().path()).unwrap();
    symlink(fixture.outside(), files.artifacts().unwrap().path()).unwrap();
    assert!(matches!(files.collect(MIB, Processes::Dead), Err(Error::Collect { .. })));
    fs::remove_file(fixture.host_path(&format!(".staging/{exec}"))).unwrap();
    fs::rename(fixture.host_path(&format!("projects/p/artifacts/{exec}")), fixture.host_path("aside")).unwrap();
    symlink(fixture.outside(), fixture.host_path(&format!("projects/p/artifacts/{exec}"))).unwrap();
    assert!(fixture.project.artifacts(&exec).is_err());
    assert!(fixture.project.read_output(&exec, Stream::Stdout, 0, 1).is_err());
    fixture.project.remove_artifacts(&exec).unwrap();
    fixture.check();
}
