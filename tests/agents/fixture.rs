//! Servers for the tests: one shared server for each mode, and workspaces that no other test uses.
//!
//! A test that changes settings or kills its server starts one of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::Mode;
use tests::support::server::{Server, Starter};

use crate::client::Client;
use crate::workspace::Workspace;

/// A mode in which the server runs (root or rootless), with the shared server of that mode.
#[derive(Debug)]
pub(crate) struct Fixture {
    mode: Mode,
    binary: PathBuf,
    /// Started by the first test that needs it.
    server: Mutex<Option<Arc<Server>>>,
}

static NEXT: AtomicU32 = AtomicU32::new(1);

impl Fixture {
    pub(crate) fn new(mode: Mode, binary: PathBuf) -> Self {
        Self { mode, binary, server: Mutex::new(None) }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// The server that tests share.
    pub(crate) fn server(&self) -> Arc<Server> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let started = server.get_or_insert_with(|| {
            let server = self.start();
            let sandbox = json!({ "max_concurrent_execs": 16, "max_concurrent_execs_per_user": 16 });
            set(&server, &json!({ "sandbox": sandbox }));
            Arc::new(server)
        });
        Arc::clone(started)
    }

    /// Starts a server of its own.
    pub(crate) fn start(&self) -> Server {
        self.start_in(TempDir::with_prefix("rw-agents-").unwrap())
    }

    /// Starts a server on the data directory of an earlier one.
    pub(crate) fn start_in(&self, data: TempDir) -> Server {
        Server::start_as(&self.starter(), data, &[])
    }

    pub(crate) fn starter(&self) -> Starter {
        Starter { identity: self.mode.identity(), binary: self.binary.clone() }
    }

    /// The workspace of a new user on the shared server, with that user's token.
    pub(crate) fn workspace(&self) -> Workspace {
        workspace_on(&self.server())
    }

    /// Stops the shared server.
    pub(crate) fn close(&self) {
        drop(self.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// True if races, crashes and large requests run in their long form.
pub(crate) fn is_soak() -> bool {
    std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1")
}

/// Returns an unused name.
pub(crate) fn new_name(of: &str) -> String {
    format!("{of}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The workspace of a new user on this server.
pub(crate) fn workspace_on(server: &Server) -> Workspace {
    workspace_of(server, &new_name("user"), &new_name("agent"))
}

/// This workspace, with a new token of its user.
pub(crate) fn workspace_of(server: &Server, user: &str, agent: &str) -> Workspace {
    let token = server.make_token(&["--role", "user", "--user", user]);
    Workspace::new(Client::of(server, &token), user, agent)
}

/// Changes settings as the owner.
pub(crate) fn set(server: &Server, settings: &Value) {
    server.ask("PUT", "/settings", Some(settings)).expect(200);
}
