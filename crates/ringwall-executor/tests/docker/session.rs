//! Fixture: a session on disk, grants for it, and session boxes of every backend.

use std::os::unix::fs::chown;
use std::path::PathBuf;

use ringwall_executor::docker::{Docker, Runtime};
use ringwall_executor::session_box::{ProcessOptions, ProcessOutput, SessionBox, StartedProcess};
use ringwall_executor::{Error, Executor, Host, Outcome};
use ringwall_policy::{Field, Grant, Owner, PathAccess, PathControl, Root, SessionMounts, Workspace};
use tokio::io::AsyncReadExt;

use super::daemon::Daemon;
use super::project::{GID, Project, RunRequest, UID, exec_id};

/// The backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestBackend {
    Native,
    Gvisor,
    Docker,
}

impl TestBackend {
    pub(crate) const ALL: [Self; 3] = [TestBackend::Native, TestBackend::Docker, TestBackend::Gvisor];
}

/// One session and its backend.
pub(crate) struct Session {
    pub(crate) maker: TestBackend,
    project: Project,
    executor: Executor,
    docker: Option<Docker>,
}

impl Session {
    pub(crate) fn new(maker: TestBackend, daemon: &Daemon) -> Self {
        let project = Project::new();
        let docker = Some(daemon.docker(project.data()));
        Self::with(maker, project, docker)
    }

    pub(crate) fn without_docker(maker: TestBackend) -> Self {
        Self::with(maker, Project::new(), None)
    }

    fn with(maker: TestBackend, project: Project, docker: Option<Docker>) -> Self {
        let executor = Executor::new(Host::probe(), project.data()).unwrap();
        let session = Session { maker, project, executor, docker };
        std::fs::create_dir_all(session.path("")).unwrap();
        chown(session.path(""), Some(UID), Some(GID)).unwrap();
        session
    }

    /// The path of a file of the session.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.project.path("session").join(name)
    }

    /// The ids of this server's containers; the daemon also has those of other tests.
    pub(crate) fn containers(&self, daemon: &Daemon) -> String {
        let id = std::fs::read_to_string(self.project.data().join("instance-id")).unwrap();
        daemon.ask(&["ps", "--quiet", &format!("--filter=label=ringwall={}", id.trim())])
    }

    pub(crate) fn grant(&self, command: &[&str]) -> Grant {
        self.run_request(&RunRequest::default(), command)
    }

    pub(crate) fn limited(&self, limits: &[(Field, u64)], command: &[&str]) -> Grant {
        self.run_request(&RunRequest { limits: limits.to_vec(), ..RunRequest::default() }, command)
    }

    pub(crate) fn run_request(&self, run_request: &RunRequest, command: &[&str]) -> Grant {
        let mounts = SessionMounts {
            work: self.path("").components().collect(),
            owner: Owner::new(UID, GID).unwrap(),
            control: PathControl::On(PathAccess::default()),
            hidden: Vec::new(),
        };
        let root = match self.maker {
            TestBackend::Native | TestBackend::Gvisor => Root::Host,
            TestBackend::Docker => run_request.root.clone(),
        };
        let run_request = RunRequest { root, ..run_request.clone() };
        self.project.grant_on(Workspace::Session(Box::new(mounts)), &run_request, command)
    }

    /// Starts a session box.
    pub(crate) async fn settle(&self) -> Result<SessionBox, Error> {
        self.settle_for(&RunRequest::default()).await
    }

    pub(crate) async fn settle_for(&self, run_request: &RunRequest) -> Result<SessionBox, Error> {
        let grant = self.run_request(run_request, &["nothing"]);
        match (self.maker, &self.docker) {
            (TestBackend::Native, _) => self.executor.start_session_box(grant).await,
            (TestBackend::Gvisor, _) => self.executor.start_session_box_on_gvisor(grant).await,
            (TestBackend::Docker, Some(docker)) => docker.start_session_box(grant, &exec_id(), Runtime::Default).await,
            (TestBackend::Docker, None) => panic!("this session has no docker"),
        }
    }

    /// Runs one command in a single-use box.
    pub(crate) async fn run_alone(&self, command: &[&str]) -> Result<(Outcome, String), Error> {
        let grant = self.grant(command);
        match (self.maker, &self.docker) {
            (TestBackend::Native, _) => {
                let mut running = self.executor.start(grant, ringwall_executor::Options::default()).await?;
                let output = super::project::read(running.take_streams());
                Ok((running.wait().await?, output.await.unwrap().0))
            }
            (TestBackend::Gvisor, _) => {
                let mut running = self.executor.start_on_gvisor(grant).await?;
                let output = super::project::read(running.take_streams());
                Ok((running.wait().await?, output.await.unwrap().0))
            }
            (TestBackend::Docker, Some(docker)) => {
                let mut running = docker.start(grant, &exec_id(), Runtime::Default).await?;
                let output = super::project::read(running.take_streams());
                Ok((running.wait().await?, output.await.unwrap().0))
            }
            (TestBackend::Docker, None) => panic!("this session has no docker"),
        }
    }

    /// Runs a script in the box to its end.
    pub(crate) async fn say(&self, session_box: &SessionBox, script: &str) -> Said {
        self.follow(session_box.process(self.grant(&["sh", "-c", script]), ProcessOptions::default()).await.unwrap())
            .await
    }

    pub(crate) async fn follow(&self, process: StartedProcess) -> Said {
        let mut streams = process.streams;
        let whole = async {
            let stdout = read(&mut streams.stdout).await;
            let stderr = match &mut streams.stderr {
                Some(stderr) => read(stderr).await,
                None => String::new(),
            };
            (stdout, stderr)
        };
        let (outcome, (stdout, stderr)) = tokio::join!(process.running.wait(), whole);
        Said { outcome: outcome.unwrap(), stdout, stderr }
    }
}

/// The result of a session process.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) outcome: Outcome,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) async fn read(stream: &mut ProcessOutput) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads exactly `count` bytes.
pub(crate) async fn read_some(stream: &mut ProcessOutput, count: usize) -> String {
    let mut text = vec![0; count];
    stream.read_exact(&mut text).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads until the text contains `wanted`.
pub(crate) async fn read_until(stream: &mut ProcessOutput, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let mut byte = [0; 64];
        let count = stream.read(&mut byte).await.unwrap();
        assert!(count > 0, "{wanted:?} never came, but {text:?}");
        text.push_str(&String::from_utf8_lossy(&byte[..count]));
    }
    text
}

/// Number of this machine's processes with `word` as an argument.
pub(crate) fn processes_with(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let words = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    words.filter(|words| words.split(|byte| *byte == 0).any(|one| one == word.as_bytes())).count()
}
