//! Fixture: a directory with workspaces and a canary beside them. Boxes are simulated by writing to
//! their directories.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringwall_ids::ExecId;
use ringwall_workspace::{
    ArtifactFile, Collected, ExecFiles, Input, Owner, Processes, Project, RelativePath, SkipReason, Workspace,
    Workspaces,
};
use rustix::fs::{AtFlags, CWD, Gid, Uid};

pub const CANARY: &str = "canary content";
pub const MIB: u64 = 1024 * 1024;
pub const RECYCLED: &str = "spare";

/// Owner of the workspace if the tests run as root; has no other files.
const BOX_ID: u32 = 54_322;

pub struct Fixture {
    pub directory: tempfile::TempDir,
    pub workspaces: Workspaces,
    pub workspace: Workspace,
    pub project: Project,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The owner of a box's files.
pub fn owner() -> Owner {
    if is_root() { Owner { uid: BOX_ID, gid: BOX_ID } } else { Owner::server() }
}

pub fn path(text: &str) -> RelativePath {
    text.parse().unwrap()
}

pub fn input(name: &str, content: &str) -> Input {
    Input { path: path(name), content: content.as_bytes().to_vec() }
}

impl Fixture {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        fs::write(directory.path().join("outside/canary"), CANARY).unwrap();
        let workspaces = Workspaces::open(&directory.path().join("data/workspaces")).unwrap();
        let workspace = open(&workspaces);
        let project = workspace.project(&"p".parse().unwrap()).unwrap();
        Self { directory, workspaces, workspace, project }
    }

    /// A path in the workspace, as seen on the host.
    pub fn host_path(&self, location: &str) -> PathBuf {
        self.directory.path().join("data/workspaces/user/agent").join(location)
    }

    pub fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    pub fn begin(&self) -> ExecFiles {
        self.project.begin(&ExecId::random().unwrap()).unwrap()
    }

    /// Runs one exec whose box executes `act` in its artifacts directory.
    pub fn run(&self, max_bytes: u64, act: impl FnOnce(&Path)) -> Collected {
        let files = self.begin();
        act(files.artifacts().unwrap().path());
        own_by_box(files.artifacts().unwrap().path());
        let staged = files.artifacts().unwrap().path().to_owned();
        let collected = files.collect(max_bytes, Processes::Dead).unwrap();
        assert!(collected.residue().is_none(), "{:?}", collected.residue());
        assert!(!staged.exists(), "the box's directory was not removed");
        self.check();
        collected
    }

    /// Checks that nothing outside of the workspaces was changed, removed or added.
    pub fn check(&self) {
        assert_eq!(fs::read_to_string(self.outside().join("canary")).unwrap(), CANARY);
        assert_eq!(names(&self.outside()), ["canary"]);
        assert_eq!(names(self.directory.path()), ["data", "outside"]);
        assert_eq!(names(&self.directory.path().join("data")), ["workspaces"]);
    }

    /// Entries of `.staging` except `warm_box`.
    pub fn staged(&self) -> Vec<String> {
        let mut staged = names(&self.host_path(".staging"));
        staged.retain(|name| name != RECYCLED);
        staged
    }

    pub fn has_recycled(&self) -> bool {
        self.host_path(".staging").join(RECYCLED).symlink_metadata().is_ok()
    }
}

pub fn open(workspaces: &Workspaces) -> Workspace {
    workspaces.workspace(&"user".parse().unwrap(), &"agent".parse().unwrap(), owner()).unwrap()
}

/// Makes the box's user the owner of everything in a directory; symlinks are not followed.
pub fn own_by_box(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        // A test that closes a directory sets its owner itself.
        if entry.file_type().unwrap().is_dir() && entry.metadata().unwrap().mode() & 0o700 == 0o700 {
            own_by_box(&entry.path());
        }
        set_owner(&entry.path());
    }
}

pub fn set_owner(path: &Path) {
    let Owner { uid, gid } = owner();
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub fn paths(files: &[ArtifactFile]) -> Vec<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

pub fn reasons(collected: &Collected) -> Vec<(&str, SkipReason)> {
    collected.skipped().iter().map(|skipped| (skipped.path.as_str(), skipped.reason)).collect()
}
