//! Fixture: a project on disk, grants for it, and runs in boxes of both backends.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ringwall_executor::docker::{Docker, Runtime};
use ringwall_executor::{Error, Executor, Options, Outcome, Output, Streams};
use ringwall_policy::{
    Ceilings, Field, Grant, Layer, LayerName, Layers, NetMode, NetRequest, Owner, ProjectAccess, ProjectMounts,
    Request, Root, Secret, Verdict, Workspace,
};
use tempfile::TempDir;

use super::daemon::IMAGE;

pub(crate) const UID: u32 = 20_001;
pub(crate) const GID: u32 = 20_002;

/// A data directory with one project, as a server makes it.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) directory: TempDir,
}

/// The request, without the command.
#[derive(Debug, Clone)]
pub(crate) struct RunRequest {
    pub(crate) root: Root,
    pub(crate) access: ProjectAccess,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) limits: Vec<(Field, u64)>,
    /// True for network access.
    pub(crate) is_open: bool,
}

impl Default for RunRequest {
    fn default() -> Self {
        RunRequest {
            root: docker_root(IMAGE),
            access: ProjectAccess::WIDEST,
            cwd: None,
            env: Vec::new(),
            limits: Vec::new(),
            is_open: false,
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) outcome: Outcome,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn docker_root(image: &str) -> Root {
    Root::Docker(image.parse().unwrap())
}

/// A unique exec id.
pub(crate) fn exec_id() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("e_{:08x}{:08x}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

impl Project {
    pub(crate) fn new() -> Self {
        let directory = TempDir::with_prefix("ringwall-test-project-").unwrap();
        let project = Project { directory };
        for (name, owner) in [("inputs", 0), ("work", UID), ("artifacts", UID)] {
            let path = project.path(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            chown_to(&path, owner);
        }
        std::fs::write(project.path("inputs").join("given"), "given\n").unwrap();
        project
    }

    pub(crate) fn data(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("workspaces/p, \"1\"").join(name)
    }

    pub(crate) fn grant(&self, run_request: &RunRequest, command: &[&str]) -> Grant {
        let mounts = ProjectMounts {
            inputs: self.path("inputs"),
            work: self.path("work"),
            artifacts: self.path("artifacts"),
            access: run_request.access,
            owner: Owner::new(UID, GID).unwrap(),
        };
        self.grant_on(Workspace::Project(Box::new(mounts)), run_request, command)
    }

    pub(crate) fn grant_on(&self, workspace: Workspace, run_request: &RunRequest, command: &[&str]) -> Grant {
        let request = Request {
            argv: command.iter().map(Into::into).collect(),
            env: run_request.env.iter().map(|(key, value)| ((*key).to_owned(), Secret::new(value))).collect(),
            cwd: run_request.cwd.clone(),
            root: run_request.root.clone(),
            workspace,
            read_only: vec![],
        };
        let mut operator = Layer::new(LayerName::CommandLine);
        operator.limits = BTreeMap::from([(Field::MemoryMb, 64), (Field::ScratchMb, 16), (Field::Pids, 64)]);
        operator.limits.extend(run_request.limits.iter().copied());
        operator.net = run_request.is_open.then(|| NetRequest { mode: NetMode::Allowlist, ..NetRequest::default() });
        let ceilings = ringwall_policy::profile::machine_ceilings(8192, 8, 32_768);
        let layers = Layers {
            system: ringwall_policy::profile::RUN,
            ceilings: Ceilings { limits: ceilings, set_by: LayerName::Machine },
            operator,
            narrowing: Vec::new(),
        };
        match ringwall_policy::decide(&request, &layers) {
            Verdict::Allow(grant) => grant,
            other => panic!("the policy did not allow the test's request: {other:?}"),
        }
    }

    /// Runs a command to its end in a container.
    pub(crate) fn run(&self, docker: &Docker, run_request: &RunRequest, command: &[&str]) -> Result<Run, Error> {
        let grant = self.grant(run_request, command);
        block_on(async {
            let mut container = docker.start(grant, &exec_id(), Runtime::Default).await?;
            let output = read(container.take_streams());
            let outcome = container.wait().await?;
            let (stdout, stderr) = output.await.unwrap();
            Ok(Run { outcome, stdout, stderr })
        })
    }

    /// Runs a command to its end in a native box.
    pub(crate) fn run_natively(&self, run_request: &RunRequest, command: &[&str]) -> Result<Run, Error> {
        let grant = self.grant(run_request, command);
        let executor = Executor::new(ringwall_executor::Host::probe(), self.data())?;
        block_on(async {
            let mut running = executor.start(grant, Options::default()).await?;
            let output = read(running.take_streams());
            let outcome = running.wait().await?;
            let (stdout, stderr) = output.await.unwrap();
            Ok(Run { outcome, stdout, stderr })
        })
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Reads stdout and stderr to their ends.
pub(crate) fn read(streams: Streams) -> tokio::task::JoinHandle<(String, String)> {
    let Streams { stdout: Some(Output::Pipe(stdout)), stderr: Some(Output::Pipe(stderr)), .. } = streams else {
        panic!("no terminal was asked for")
    };
    let whole = |stream: std::os::fd::OwnedFd| {
        let mut text = Vec::new();
        std::fs::File::from(stream).read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    };
    tokio::task::spawn_blocking(move || {
        let stderr = std::thread::spawn(move || whole(stderr));
        (whole(stdout), stderr.join().unwrap())
    })
}

pub(crate) fn write(stream: std::os::fd::OwnedFd, text: &str) {
    std::fs::File::from(stream).write_all(text.as_bytes()).unwrap();
}

fn chown_to(path: &Path, uid: u32) {
    let gid = if uid == 0 { 0 } else { GID };
    chown(path, Some(uid), Some(gid)).unwrap();
}
