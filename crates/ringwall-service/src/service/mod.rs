//! What a server holds: the record, the files, the hands, and who waits. Cheap to clone.
//!
//! Only state lives here; each use case has a file of its own with its `impl Service`.

mod auth;
mod boxes;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use ringwall_executor::Privilege;
use ringwall_executor::docker::DockerState;
use ringwall_record::{AgentId, Digest, Exec, ExecId, Store, UserId};
use ringwall_workspace::{Baselines, Owner, Workspaces};
use tokio::task::JoinHandle;

use crate::approvals::Desk;
use crate::auth::Auth;
use crate::auth::digest_key::DigestKey;
use crate::auth::logins::Logins;
use crate::auth::principal::Principal;
use crate::auth::tickets::Tickets;
use crate::boxes::SessionGates;
use crate::boxes::browser::Browsers;
use crate::boxes::{BoxPool, Makers};
use crate::disk::Quotas;
use crate::error::Error;
use crate::exec::assess::Assessors;
use crate::exec::queue::Turns;
use crate::exec::registry::Registry;
use crate::health::Looked;
use crate::metrics::Counters;
use crate::settings::AssignedService;
use crate::settings::PinnedSettings;
use crate::settings::Settings;
use crate::skills::Skills;
use crate::time::now;
use crate::workspace_locks::Locks;

/// The user ids of workspaces as root: in the range that systemd's table of ids leaves unused, above those that the
/// executor gives to boxes without a workspace of somebody's.
const WORKSPACE_UIDS: std::ops::RangeInclusive<u32> = 2_132_000_000..=2_147_000_000;

#[derive(Clone)]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) auth: Auth,
    pub(crate) logins: Logins,
    /// The hash of the owner's token, where tokens are asked for.
    pub(crate) owner_token: Option<Digest>,
    pub(crate) pinned: PinnedSettings,
    pub(crate) store: Store,
    pub(crate) digest_key: DigestKey,
    pub(crate) workspaces: Arc<Workspaces>,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) workspaces_path: PathBuf,
    /// What the server keeps for itself, by its real places: no box is ever shown any of it.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) workspace_root: ringwall_executor::docker::paths::WorkspaceRoot,
    /// Before the executor too: browsers are in boxes.
    pub(crate) browsers: Browsers,
    /// Boxes of sessions and those made ahead; before the executor, which waits for the end of every box.
    pub(crate) boxes: Arc<BoxPool>,
    pub(crate) makers: Arc<Makers>,
    /// An external AIO service and whose it is, where there is one.
    pub(crate) aio: Option<AssignedService>,
    pub(crate) skills: Arc<Skills>,
    pub(crate) settings: RwLock<Arc<Settings>>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) tickets: Tickets,
    pub(crate) counters: Counters,
    pub(crate) agent_locks: Locks,
    pub(crate) session_gates: SessionGates,
    /// Held by the boxes on an agent's files.
    pub(crate) agent_boxes: Locks,
    pub(crate) quotas: Quotas,
    pub(crate) assessors: Assessors,
    pub(crate) looked: tokio::sync::Mutex<Option<Looked>>,
    /// What docker was like when code last needed to know.
    pub(crate) docker_seen: tokio::sync::Mutex<Option<(Instant, Arc<DockerState>)>>,
    pub(crate) uids: Mutex<HashMap<(UserId, AgentId), u32>>,
    /// The task that removes what is old.
    pub(crate) pruner: Mutex<Option<JoinHandle<()>>>,
    /// The task that looks after what boxes of sessions write while nobody runs anything in them.
    pub(crate) measurer: Mutex<Option<JoinHandle<()>>>,
    /// The task that ends questions which nobody answers.
    pub(crate) expirer: Mutex<Option<JoinHandle<()>>>,
    /// The task that looks how much goes on.
    pub(crate) observer: Mutex<Option<JoinHandle<()>>>,
    /// Held as long as the server lives: one server for one data directory.
    pub(crate) _lock: Arc<File>,
}

impl fmt::Debug for Service {
    /// Everything that it holds would be pages.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Whose files a workspace's are on the host.
    pub(crate) async fn owner_of(&self, user: &UserId, agent: &AgentId) -> Result<Owner, Error> {
        match self.inner.makers.executor.host().privilege {
            Privilege::Rootless => return Ok(Owner::server()),
            Privilege::Root => {}
        }
        let key = (user.clone(), agent.clone());
        let known = self.inner.uids.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let uid = match known {
            Some(uid) => uid,
            None => {
                let uid = self.inner.store.host_uid(user, agent, WORKSPACE_UIDS, now()).await?;
                self.inner.uids.lock().unwrap_or_else(PoisonError::into_inner).insert(key, uid);
                uid
            }
        };
        Ok(Owner { uid, gid: uid })
    }

    /// A secret of the data directory for one purpose of a door's.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        self.inner.digest_key.derive(purpose)
    }

    pub(crate) fn settings_now(&self) -> Arc<Settings> {
        self.inner.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The exec as it is on record, if the asker may see it.
    pub(crate) async fn recorded(&self, by: &Principal, exec_id: &ExecId) -> Result<Exec, Error> {
        let found = self.inner.store.exec(exec_id, &by.scope()).await?;
        let exec = found.ok_or_else(|| no_exec(exec_id))?;
        // What it left is put away while its ending is recorded; who sees the one finds the other.
        if exec.summary.status.is_ended()
            && let Some(live) = self.find_live(by, exec_id)
        {
            live.over().await;
        }
        Ok(exec)
    }
}

pub(crate) fn no_exec(exec_id: &ExecId) -> Error {
    Error::NotFound { what: format!("exec {exec_id}") }
}
