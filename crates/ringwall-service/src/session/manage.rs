//! Creates, shows, lists, changes and deletes sessions.
//!
//! The first use of a session also creates it. Deleting a session cancels its execs, then records
//! the end of the session, then removes its files; `rules` says which rules outlive it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::SystemTime;

use ringwall_ids::{AgentId, UserId, random_digits};
use ringwall_policy::SecurityMode;
use ringwall_record::{Confirmation, Holder, Limit, SessionKey, SessionWithRules, Timestamp, UserRules};
use ringwall_workspace::{SessionCursor, SessionPage, SessionTimes, Workspace};
use serde::Serialize;
use utoipa::ToSchema;

use super::rules::SessionChange;
use crate::auth::principal::Principal;
use crate::blocking::{self, detached};
use crate::disk::Disk;
use crate::error::{Error, causes};
use crate::exec::authorize::session_work;
use crate::exec::registry::Cancellation;
use crate::service::Service;
use crate::session_ref::{SessionAddress, no_session};
use crate::settings::Rules;
use crate::time::{now, timestamp};

/// The actor in the audit entry of a session that retention deletes.
const BY: &str = "retention";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    pub session_id: String,
    #[schema(value_type = String)]
    pub user_id: UserId,
    #[schema(value_type = String)]
    pub agent_id: AgentId,
    /// Who decides whether code with a high risk may run
    pub confirmation: Confirmation,
    /// The URL that is called with each question; shown to operators only
    pub callback_url: Option<String>,
    /// `strict` or `permissive`
    #[schema(value_type = String)]
    pub security_mode: SecurityMode,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    /// When retention removes the session unless it is used before
    pub expires_at: Timestamp,
    /// Disk usage of the session's files; missing in lists
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

/// Restricts a list of sessions. `None` matches every value.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
}

/// A page of sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionList {
    pub sessions: Vec<SessionView>,
    /// Start of the next page; `None` on the last page.
    pub next: Option<SessionCursor>,
}

impl Service {
    /// Creates a session. An empty `session_id` is replaced by a random one.
    pub async fn create_session(
        &self,
        by: &Principal,
        mut address: SessionAddress,
        change: SessionChange,
    ) -> Result<SessionView, Error> {
        if address.session_id.is_empty() {
            address.session_id = format!("s_{}", random_digits::<16>()?);
        }
        let session = address.resolve(by)?;
        if !change.is_empty() {
            change.check_role(by)?;
        }
        let workspace = self.session_workspace(&session).await?;
        let _writing = self.inner.agent_locks.write(&session.user_id, &session.agent_id).await?;
        if self.session_times(&session).await?.is_some() {
            return Err(Error::Conflict { message: format!("session {} already exists", session.session_id) });
        }
        // Records the end of an earlier session with this id before the new one exists. The change
        // is checked before any directory is created.
        let rules = self.stored_rules(&session).await?;
        if !change.is_empty() {
            self.check_change(by, &change, rules)?;
        }
        blocking::in_place(|| Ok(workspace.session(&session.session_id)?.create_directories()?)).await?;
        self.store_rules(by, &session, &change).await?;
        self.show_session(by, &session).await
    }

    pub async fn session(&self, by: &Principal, address: &SessionAddress) -> Result<SessionView, Error> {
        self.show_session(by, &address.resolve(by)?).await
    }

    /// Sorted by last use, most recent first.
    pub async fn sessions(
        &self,
        by: &Principal,
        filter: SessionFilter,
        limit: Limit,
        cursor: Option<SessionCursor>,
    ) -> Result<SessionList, Error> {
        let (own_user, own_agent) = match by.holder() {
            Holder::Owner | Holder::Operator => (None, None),
            Holder::User(user) => (Some(user.as_str()), None),
            Holder::Agent(user, agent) => (Some(user.as_str()), Some(agent.as_str())),
        };
        let is_foreign = |own: Option<&str>, named: &Option<String>| {
            own.zip(named.as_deref()).is_some_and(|(own, named)| own != named)
        };
        let user = filter.user_id.as_deref().or(own_user).map(str::parse).transpose()?;
        let agent = filter.agent_id.as_deref().or(own_agent).map(str::parse).transpose()?;
        if is_foreign(own_user, &filter.user_id) || is_foreign(own_agent, &filter.agent_id) {
            return Ok(SessionList::default());
        }
        let workspaces = self.inner.workspaces.clone();
        let list = move || Ok(workspaces.sessions(user.as_ref(), agent.as_ref(), cursor.as_ref(), limit.get()));
        let SessionPage { sessions: found, next } = detached(list).await?;
        let mut keys = Vec::with_capacity(found.len());
        for session in &found {
            let (user_id, agent_id) = (session.user.clone(), session.agent.clone());
            keys.push(SessionKey { user_id, agent_id, session_id: session.session.clone() });
        }
        let mut rules = self.inner.store.rules_of_sessions(&keys).await?;
        let default = self.settings_now().sessions;
        let sessions = keys.into_iter().zip(found).map(|(key, session)| {
            let rules = Rules::over(rules.remove(&key).unwrap_or_default(), default);
            self.session_view(by, key, session.times, rules)
        });
        Ok(SessionList { sessions: sessions.collect(), next })
    }

    pub async fn change_session(
        &self,
        by: &Principal,
        address: &SessionAddress,
        change: SessionChange,
    ) -> Result<SessionView, Error> {
        change.check_role(by)?;
        let session = address.resolve(by)?;
        self.require_session(&session).await?;
        let _writing = self.inner.agent_locks.write(&session.user_id, &session.agent_id).await?;
        self.store_rules(by, &session, &change).await?;
        self.show_session(by, &session).await
    }

    /// Cancels the execs of a session, ends its boxes and its browser, and removes its files.
    pub async fn delete_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        let session = address.resolve(by)?;
        self.require_session(&session).await?;
        let mut execs = self.inner.registry.all();
        execs.retain(|exec| exec.is_in(&session));
        execs.iter().for_each(|exec| exec.cancel(Cancellation::ByCaller));
        // Ending a paused box resumes it briefly. Its processes must not run while an approved
        // command has exclusive use of the session, so this waits until that command has ended.
        drop(self.inner.session_gates.share(&session).await);
        // Ends the boxes in any state, also paused ones. They are ended again below, because one of
        // the execs may have been creating a box.
        tokio::join!(self.inner.browsers.dismiss(&self.inner.store, &session), self.end_boxes(&session));
        futures::future::join_all(execs.iter().map(|exec| exec.over())).await;
        self.end_boxes(&session).await;
        let workspace = self.session_workspace(&session).await?;
        let _writing = self.inner.agent_locks.write(&session.user_id, &session.agent_id).await?;
        let user_rules = match by.holder() {
            Holder::Owner | Holder::Operator | Holder::User(_) => UserRules::Dropped,
            Holder::Agent(..) => UserRules::Kept,
        };
        self.inner.store.end_session(session.clone(), user_rules, now(), by.caller()).await?;
        let (id, disks) = (session.session_id.clone(), self.session_disks(&session, &workspace));
        let removed = detached(move || Ok(workspace.remove_session(&id)?)).await?;
        disks.iter().for_each(Disk::shrink);
        if removed { Ok(()) } else { Err(no_session(&session.session_id)) }
    }

    /// Records the end of sessions that retention removes next, or whose directory is gone. It runs
    /// before the removal, so that a new session with the same id never inherits a rule that
    /// loosens the defaults.
    pub(crate) async fn end_idle_sessions(&self, used_before: SystemTime) -> Result<(), Error> {
        for SessionWithRules { name: session, has_ended } in self.inner.store.sessions_with_rules().await? {
            let is_over = match self.session_times(&session).await {
                Ok(Some(times)) => times.last_used < used_before,
                Ok(None) => !has_ended,
                Err(error) => {
                    tracing::warn!(session = %session.session_id, error = %causes(&error), "could not read the times of a session");
                    false
                }
            };
            if is_over {
                self.inner.store.end_session(session, UserRules::Kept, now(), BY).await?;
            }
        }
        Ok(())
    }

    /// Updates the last-used time of every session with a running exec, so that retention does not
    /// remove a session whose exec started long ago.
    pub(crate) async fn touch_sessions_in_use(&self) {
        let execs = self.inner.registry.all();
        let used: HashSet<&SessionKey> = execs.iter().filter_map(|exec| exec.session.as_ref()).collect();
        for session in used {
            let touched = async {
                let workspace = self.session_workspace(session).await?;
                blocking::in_place(|| Ok(workspace.find_session(&session.session_id)?.is_some())).await
            };
            if let Err(error) = touched.await {
                let id = &session.session_id;
                tracing::warn!(session = %id, error = %causes(&error), "could not update the last use of a session");
            }
        }
    }

    /// The session's working directory. It may not exist yet.
    pub(crate) fn session_work(&self, session: &SessionKey) -> PathBuf {
        session_work(&self.workspace_path(&session.user_id, &session.agent_id), &session.session_id)
    }

    pub(crate) async fn session_workspace(&self, key: &SessionKey) -> Result<Workspace, Error> {
        let owner = self.owner_of(&key.user_id, &key.agent_id).await?;
        blocking::in_place(|| Ok(self.inner.workspaces.workspace(&key.user_id, &key.agent_id, owner)?)).await
    }

    /// When a session was created and last used; `None` if it does not exist.
    pub(crate) async fn session_times(&self, session: &SessionKey) -> Result<Option<SessionTimes>, Error> {
        let workspace = self.session_workspace(session).await?;
        blocking::in_place(|| Ok(workspace.session_times(&session.session_id)?)).await
    }

    /// Fails if the session does not exist.
    pub(crate) async fn require_session(&self, session: &SessionKey) -> Result<SessionTimes, Error> {
        self.session_times(session).await?.ok_or_else(|| no_session(&session.session_id))
    }

    /// The quotas that the session's files count against: those of the workspace and of the
    /// session.
    pub(super) fn session_disks(&self, session: &SessionKey, workspace: &Workspace) -> [Disk; 2] {
        let disk = self.disk(&session.user_id, &session.agent_id, workspace);
        let own = self.session_disk(&disk, &session.session_id);
        [disk, own]
    }

    async fn show_session(&self, by: &Principal, session: &SessionKey) -> Result<SessionView, Error> {
        let times = self.require_session(session).await?;
        let workspace = self.session_workspace(session).await?;
        let (id, max_files) = (session.session_id.clone(), self.settings_now().workspace.quota_files.get());
        let usage = detached(move || Ok(workspace.measure_session(&id, max_files.into())?)).await?;
        let rules = self.session_rules(session).await?;
        let view = self.session_view(by, session.clone(), times, rules);
        Ok(SessionView { size_bytes: Some(usage.bytes), ..view })
    }

    fn session_view(&self, by: &Principal, key: SessionKey, times: SessionTimes, rules: Rules) -> SessionView {
        let is_operator = by.require_operator("see the callback URL").is_ok();
        SessionView {
            session_id: key.session_id.to_string(),
            user_id: key.user_id,
            agent_id: key.agent_id,
            confirmation: rules.confirmation,
            callback_url: rules.callback_url.filter(|_| is_operator),
            security_mode: rules.mode,
            created_at: timestamp(times.created),
            last_used_at: timestamp(times.last_used),
            expires_at: timestamp(times.last_used + self.settings_now().sessions.kept()),
            size_bytes: None,
        }
    }
}
