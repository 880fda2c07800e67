//! The state of a server: database, files, executor and waiting execs. Cheap to clone.
//!
//! Contains only state; each use case has its own file with its `impl Service`.

mod auth;
mod boxes;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use ringwall_executor::Privilege;
use ringwall_executor::docker::DockerState;
use ringwall_ids::{AgentId, ExecId, UserId};
use ringwall_record::{Digest, Exec, Store};
use ringwall_workspace::{Baselines, Owner, Workspaces};
use tokio::task::JoinHandle;

use crate::approvals::OpenApprovals;
use crate::auth::Auth;
use crate::auth::digest_key::DigestKey;
use crate::auth::logins::Logins;
use crate::auth::principal::Principal;
use crate::auth::tickets::Tickets;
use crate::boxes::browser::Browsers;
use crate::boxes::{BoxBackends, BoxPool, SessionGates};
use crate::disk::Quotas;
use crate::error::Error;
use crate::exec::assess::Assessors;
use crate::exec::queue::ExecQueue;
use crate::exec::registry::Registry;
use crate::health::LastCheck;
use crate::metrics::Counters;
use crate::settings::{AssignedService, PinnedSettings, Settings};
use crate::skills::Skills;
use crate::time::now;
use crate::workspace_locks::Locks;

/// Uids of workspaces if the server runs as root: in a range that systemd's uid table leaves
/// unused, above the uids that the executor gives to boxes without a workspace.
const WORKSPACE_UIDS: std::ops::RangeInclusive<u32> = 2_132_000_000..=2_147_000_000;

#[derive(Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) auth: Auth,
    pub(crate) logins: Logins,
    /// The hash of the owner's token; `None` with `--no-auth`.
    pub(crate) owner_token: Option<Digest>,
    pub(crate) pinned: PinnedSettings,
    pub(crate) store: Store,
    pub(crate) digest_key: DigestKey,
    pub(crate) workspaces: Arc<Workspaces>,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) workspaces_path: PathBuf,
    /// Resolved paths of the server's own files, which are hidden from every box.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) workspace_root: ringwall_executor::docker::paths::WorkspaceRoot,
    /// Dropped before the executor, because browsers run in boxes.
    pub(crate) browsers: Browsers,
    /// Session boxes and warm boxes. Dropped before the executor, which waits until every box has
    /// ended.
    pub(crate) boxes: Arc<BoxPool>,
    pub(crate) backends: Arc<BoxBackends>,
    /// The external AIO service and its workspace, if configured.
    pub(crate) aio: Option<AssignedService>,
    pub(crate) skills: Arc<Skills>,
    pub(crate) settings: RwLock<Arc<Settings>>,
    pub(crate) exec_queue: Arc<ExecQueue>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) open_approvals: Arc<OpenApprovals>,
    pub(crate) tickets: Tickets,
    pub(crate) counters: Counters,
    pub(crate) agent_locks: Locks,
    pub(crate) session_gates: SessionGates,
    /// Locks held while boxes run on an agent's files.
    pub(crate) agent_boxes: Locks,
    pub(crate) quotas: Quotas,
    pub(crate) assessors: Assessors,
    pub(crate) last_check: tokio::sync::Mutex<Option<LastCheck>>,
    /// The last state of Docker and when it was checked.
    pub(crate) docker_seen: tokio::sync::Mutex<Option<(Instant, Arc<DockerState>)>>,
    pub(crate) uids: Mutex<HashMap<(UserId, AgentId), u32>>,
    /// Tasks that run until the server stops: retention, disk checks, expiry of approvals, metrics.
    pub(crate) background: Mutex<Vec<JoinHandle<()>>>,
    /// The lock of the data directory, held while the server runs: one server per data directory.
    pub(crate) _lock: Arc<File>,
}

impl fmt::Debug for Service {
    /// Prints no fields: they include secrets and whole tables.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// The owner of a workspace's files on the host.
    pub(crate) async fn owner_of(&self, user: &UserId, agent: &AgentId) -> Result<Owner, Error> {
        match self.inner.backends.executor.host().privilege {
            Privilege::Rootless => return Ok(Owner::server()),
            Privilege::Root => {}
        }
        let key = (user.clone(), agent.clone());
        let known = self.inner.uids.lock().get(&key).copied();
        let uid = match known {
            Some(uid) => uid,
            None => {
                let uid = self.inner.store.host_uid(user, agent, WORKSPACE_UIDS, now()).await?;
                self.inner.uids.lock().insert(key, uid);
                uid
            }
        };
        Ok(Owner { uid, gid: uid })
    }

    /// A key for one purpose of a transport, derived from `digest.key`.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        self.inner.digest_key.derive(purpose)
    }

    pub(crate) fn settings_now(&self) -> Arc<Settings> {
        self.inner.settings.read().clone()
    }

    /// Runs `task` until it ends or the server stops.
    pub(crate) fn run_in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.background.lock().push(tokio::spawn(task));
    }

    /// The recorded exec, if the caller may see it.
    pub(crate) async fn recorded(&self, by: &Principal, exec_id: &ExecId) -> Result<Exec, Error> {
        let found = self.inner.store.exec(exec_id, &by.scope()).await?;
        let exec = found.ok_or_else(|| no_exec(exec_id))?;
        // The ending is recorded while artifacts are still being stored. Wait for them, so that an
        // ended exec is returned with its artifacts.
        if exec.summary.status.is_ended()
            && let Some(running) = self.find_running(by, exec_id)
        {
            running.over().await;
        }
        Ok(exec)
    }
}

pub(crate) fn no_exec(exec_id: &ExecId) -> Error {
    Error::NotFound { what: format!("exec {exec_id}") }
}
