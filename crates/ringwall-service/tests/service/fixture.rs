//! A service in a temporary directory, with helpers.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringwall_record::Database;
use ringwall_service::{Auth, Config, Error, ExecId, ExecRequest, ExecView, Principal, Service, Stream};
use tempfile::TempDir;

pub struct Fixture {
    pub service: Service,
    pub owner: Principal,
    pub directory: TempDir,
}

/// Runs a test with a service that lives until the test has returned.
pub fn in_fixture(attempt: impl AsyncFnOnce(&Fixture)) {
    block_on(async {
        let fixture = Fixture::open().await;
        attempt(&fixture).await;
    });
}

pub fn block_on(attempt: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(attempt);
}

/// Timeout of waits. Generous for slow machines; it only expires if a test fails.
pub const LONG: Duration = Duration::from_secs(60);

/// Polls until `look` returns a value; panics after [`LONG`].
pub async fn seen<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, looking).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

pub fn config(data: &Path, auth: Auth) -> Config {
    let database = Database::Sqlite(data.join("db.sqlite"));
    Config { data: data.to_owned(), database, auth, pinned: Default::default(), file: None }
}

impl Fixture {
    pub async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let service = Service::open(config(directory.path(), Auth::Disabled)).await.unwrap();
        let owner = service.authenticate(None).await.unwrap();
        Self { service, owner, directory }
    }

    pub async fn run(&self, request: ExecRequest) -> ExecView {
        let submitted = self.service.submit(&self.owner, request).await.unwrap();
        self.service.finished(&self.owner, &submitted.exec_id).await.unwrap()
    }

    pub async fn run_shell(&self, script: &str) -> ExecView {
        self.run(shell(script)).await
    }

    /// Waits until the output of an exec is exactly `text`.
    pub async fn printed(&self, exec_id: &ExecId, text: &str) {
        seen(&format!("{text:?} of the exec {exec_id}"), async || {
            let part = self.service.output(&self.owner, exec_id, Stream::Stdout, 0, u64::MAX).await.unwrap();
            (part.bytes == text.as_bytes()).then_some(())
        })
        .await;
    }

    pub async fn refused(&self, request: ExecRequest) -> Error {
        self.service.submit(&self.owner, request).await.unwrap_err()
    }

    pub async fn text(&self, view: &ExecView, stream: Stream) -> String {
        let id = &view.summary.exec_id;
        let part = self.service.output(&self.owner, id, stream, 0, u64::MAX).await.unwrap();
        assert!(part.ended);
        String::from_utf8(part.bytes).unwrap()
    }

    pub async fn set(&self, settings: serde_json::Value) {
        self.service.change_settings(&self.owner, settings).await.unwrap();
    }

    /// A directory of the user's project `p`.
    pub fn project(&self, user: &str, name: &str) -> PathBuf {
        let path = self.directory.path().join("workspaces").join(user).join("default/projects/p").join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Releases the [`HELD`] execs in the user's project.
    pub fn release(&self, user: &str) {
        std::fs::write(self.project(user, "work").join("go"), "").unwrap();
    }
}

/// A command that runs until it is released.
pub const HELD: &str = "echo held; until [ -e go ]; do sleep 0.01; done; echo released";

pub fn shell(script: &str) -> ExecRequest {
    ExecRequest {
        project_id: Some("p".to_owned()),
        kind: "shell".to_owned(),
        command: "bash".to_owned(),
        args: vec!["-lc".to_owned(), script.to_owned()],
        ..ExecRequest::default()
    }
}

pub fn shell_of(user: &str, script: &str) -> ExecRequest {
    ExecRequest { user_id: Some(user.to_owned()), ..shell(script) }
}

pub fn limited(script: &str, overrides: serde_json::Value) -> ExecRequest {
    ExecRequest { overrides: Some(overrides), ..shell(script) }
}

pub fn reason(view: &ExecView) -> &str {
    view.error_reason.as_ref().map_or("", |reason| reason.code.as_str())
}
