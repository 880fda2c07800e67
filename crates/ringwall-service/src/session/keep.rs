//! Creates, shows, lists, changes and deletes sessions.
//!
//! The first use of a session also creates it. Deleting a session cancels its execs, then records
//! the end of the session, then removes its files; `rules` says which rules outlive it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_ids::{AgentId, SessionId, UserId, random_digits};
use ringwall_policy::SecurityMode;
use ringwall_record::{Confirmation, Holder, Limit, SessionKey, SessionWithRules, Timestamp, UserRules};
use ringwall_workspace::{SessionCursor, SessionPage, SessionTimes};
use serde::Serialize;
use utoipa::ToSchema;

use super::rules::SessionChange;
use crate::auth::principal::Principal;
use crate::blocking;
use crate::blocking::detached;
use crate::error::{Error, causes};
use crate::exec::registry::Cancellation;
use crate::service::Service;
use crate::session_ref::{SessionAddress, SessionRef, no_session};
use crate::settings::Rules;
use crate::time::{milliseconds, now};

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
    /// Who says whether code with a high risk may run
    pub confirmation: Confirmation,
    /// Where that is asked; for operators alone
    pub callback_url: Option<String>,
    /// `strict` or `permissive`
    #[schema(value_type = String)]
    pub security_mode: SecurityMode,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    /// When it is removed if nobody uses it
    pub expires_at: Timestamp,
    /// What its files take on the disk; not in a list
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
        let place = SessionRef::read(by, &address)?;
        if !change.is_empty() {
            change.check_role(by)?;
        }
        let workspace = self.session_workspace(&place.name).await?;
        let _writing = self.inner.agent_locks.write(&place.name.user_id, &place.name.agent_id).await?;
        if self.session_times(&place).await?.is_some() {
            return Err(Error::Conflict { message: format!("the session {} is there already", place.id) });
        }
        // Records the end of an earlier session with this id before the new one exists. The change
        // is checked before any directory is created.
        let said = self.said_of(&place).await?;
        if !change.is_empty() {
            self.check_change(by, &change, said)?;
        }
        blocking::in_place(|| Ok(workspace.session(&place.id)?.create_directories()?)).await?;
        if !change.is_empty() {
            self.rule_session(by, &place, &change).await?;
        }
        self.show_session(by, &place).await
    }

    pub async fn session(&self, by: &Principal, address: &SessionAddress) -> Result<SessionView, Error> {
        self.show_session(by, &SessionRef::read(by, address)?).await
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
        let look = move || Ok(workspaces.sessions(user.as_ref(), agent.as_ref(), cursor.as_ref(), limit.get()));
        let SessionPage { sessions: found, next } = detached(look).await?;
        let mut places = Vec::with_capacity(found.len());
        for session in found {
            let name =
                SessionKey { user_id: session.user, agent_id: session.agent, session_id: session.session.to_string() };
            places.push((name, session.times));
        }
        let names: Vec<SessionKey> = places.iter().map(|(name, _)| name.clone()).collect();
        let mut said = self.inner.store.rules_of_sessions(&names).await?;
        let default = self.settings_now().sessions;
        let sessions = places.into_iter().map(|(name, times)| {
            let rules = Rules::over(said.remove(&name).unwrap_or_default(), default);
            self.describe(by, name, times, rules)
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
        let place = SessionRef::read(by, address)?;
        self.session_times(&place).await?.ok_or_else(|| no_session(&place.id))?;
        let _writing = self.inner.agent_locks.write(&place.name.user_id, &place.name.agent_id).await?;
        if !change.is_empty() {
            self.rule_session(by, &place, &change).await?;
        }
        self.show_session(by, &place).await
    }

    /// Cancels the execs of a session, ends its boxes and its browser, and removes its files.
    pub async fn delete_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        let place = SessionRef::read(by, address)?;
        self.session_times(&place).await?.ok_or_else(|| no_session(&place.id))?;
        let in_it: Vec<_> =
            self.inner.registry.all().into_iter().filter(|running| running.is_in(&place.name)).collect();
        in_it.iter().for_each(|running| running.cancel(Cancellation::ByCaller));
        // Ending a paused box resumes it briefly. Its processes must not run while an approved
        // command has exclusive use of the session, so this waits until that command has ended.
        drop(self.inner.session_gates.share(&place.name).await);
        // Ends the boxes in any state, also paused ones. They are ended again below, because one of
        // the execs may have been creating a box.
        tokio::join!(self.inner.browsers.dismiss(&self.inner.store, &place.name), self.end_boxes(&place));
        futures::future::join_all(in_it.iter().map(|running| running.over())).await;
        self.end_boxes(&place).await;
        let workspace = self.session_workspace(&place.name).await?;
        let _writing = self.inner.agent_locks.write(&place.name.user_id, &place.name.agent_id).await?;
        let user_rules = match by.holder() {
            Holder::Owner | Holder::Operator | Holder::User(_) => UserRules::Dropped,
            Holder::Agent(..) => UserRules::Kept,
        };
        self.inner.store.end_session(place.name.clone(), user_rules, now(), by.caller()).await?;
        let (id, disk) = (place.id.clone(), self.disk(&place.name.user_id, &place.name.agent_id, &workspace));
        let removed = detached(move || Ok(workspace.remove_session(&id)?)).await?;
        disk.shrink();
        self.session_disk(&disk, &place.id).shrink();
        if removed { Ok(()) } else { Err(no_session(&place.id)) }
    }

    /// Records the end of sessions that retention removes next, or whose directory is gone. It runs
    /// before the removal, so that a new session with the same id never inherits a rule that
    /// loosens the defaults.
    pub(crate) async fn end_idle_sessions(&self, used_before: SystemTime) -> Result<(), Error> {
        for SessionWithRules { name, has_ended } in self.inner.store.sessions_with_rules().await? {
            let Ok(id) = name.session_id.parse::<SessionId>() else { continue };
            let place = SessionRef { name, id };
            let times = self.session_times(&place).await;
            let is_over = match times {
                Ok(Some(times)) => times.last_used < used_before,
                Ok(None) => !has_ended,
                Err(error) => {
                    tracing::warn!(session = %place.id, error = %causes(&error), "could not look at a session");
                    false
                }
            };
            if is_over {
                self.inner.store.end_session(place.name, UserRules::Kept, now(), BY).await?;
            }
        }
        Ok(())
    }

    /// Updates the last-used time of every session with a running exec, so that retention does not
    /// remove a session whose exec started long ago.
    pub(crate) async fn touch_sessions_in_use(&self) {
        let lives = self.inner.registry.all();
        let named: BTreeSet<_> = lives
            .iter()
            .filter_map(|running| Some((&running.user_id, &running.agent_id, running.session.as_ref()?)))
            .collect();
        for (user_id, agent_id, session_id) in named {
            let (user_id, agent_id, session_id) = (user_id.clone(), agent_id.clone(), session_id.clone());
            let Ok(id) = session_id.parse::<SessionId>() else { continue };
            let touched = async {
                let workspace = self.session_workspace(&SessionKey { user_id, agent_id, session_id }).await?;
                blocking::in_place(|| Ok(workspace.find_session(&id)?.is_some())).await
            };
            if let Err(error) = touched.await {
                tracing::warn!(session = %id, error = %causes(&error), "could not note that a session is in use");
            }
        }
    }

    async fn show_session(&self, by: &Principal, place: &SessionRef) -> Result<SessionView, Error> {
        let times = self.session_times(place).await?.ok_or_else(|| no_session(&place.id))?;
        let workspace = self.session_workspace(&place.name).await?;
        let (id, most) = (place.id.clone(), self.settings_now().workspace.quota_files.get());
        let usage = detached(move || Ok(workspace.measure_session(&id, most.into())?)).await?;
        let rules = self.session_rules(place).await?;
        let view = self.describe(by, place.name.clone(), times, rules);
        Ok(SessionView { size_bytes: Some(usage.bytes), ..view })
    }

    fn describe(&self, by: &Principal, name: SessionKey, times: SessionTimes, rules: Rules) -> SessionView {
        let is_operator = by.require_operator("see it").is_ok();
        SessionView {
            session_id: name.session_id,
            user_id: name.user_id,
            agent_id: name.agent_id,
            confirmation: rules.confirmation,
            callback_url: rules.callback_url.filter(|_| is_operator),
            security_mode: rules.mode,
            created_at: moment(times.created),
            last_used_at: moment(times.last_used),
            expires_at: moment(times.last_used + self.settings_now().sessions.kept()),
            size_bytes: None,
        }
    }
}

fn moment(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_milliseconds(i64::try_from(milliseconds(since)).unwrap_or(i64::MAX))
}
