//! Lists, interrupts, restarts and deletes contexts.

use std::sync::Arc;

use ringwall_executor::BoxControl as _;
use ringwall_policy::Isolation;
use ringwall_record::{SessionKey, Timestamp};
use rustix::process::Signal;
use serde::Serialize;

use crate::auth::principal::Principal;
use crate::boxes::{BoxKey, Context, Doing, PooledBox};
use crate::error::Error;
use crate::service::Service;
use crate::session_ref::SessionAddress;

/// The context that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextAddress {
    pub session: SessionAddress,
    pub context_id: String,
}

/// An interpreter that stays.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct ContextView {
    context_id: String,
    /// `python` or `javascript`
    language: &'static str,
    /// Who made the box that it is in
    sandbox_type: &'static str,
    /// `idle` or `busy`
    status: &'static str,
    #[schema(value_type = String)]
    created_at: Timestamp,
    #[schema(value_type = String)]
    last_used_at: Timestamp,
}

impl ContextView {
    fn new(id: &str, context: &Context, isolation: Isolation) -> Self {
        Self {
            context_id: id.to_owned(),
            language: context.language.key(),
            sandbox_type: isolation.key(),
            status: match context.doing {
                Doing::Nothing => "idle",
                Doing::Running => "busy",
            },
            created_at: context.created_at,
            last_used_at: context.used_at,
        }
    }
}

impl Service {
    /// The contexts of a session; empty if it has no box.
    pub async fn contexts(&self, by: &Principal, session: &SessionAddress) -> Result<Vec<ContextView>, Error> {
        let session = self.known_session(by, session).await?;
        let view = |(key, home): (BoxKey, Arc<PooledBox>)| {
            home.read(|contexts| {
                contexts.iter().map(|(id, context)| ContextView::new(id, context, key.isolation)).collect::<Vec<_>>()
            })
        };
        Ok(self.homes(&session).into_iter().flat_map(view).collect())
    }

    /// Interrupts the running code with SIGINT. Returns whether code was running.
    pub async fn interrupt_context(&self, by: &Principal, address: &ContextAddress) -> Result<bool, Error> {
        let home = self.home_of(by, address).await?;
        let running = home.read(|contexts| {
            let context = contexts.get(&address.context_id).filter(|context| context.doing == Doing::Running)?;
            context.handle.clone()
        });
        if let Some(handle) = &running {
            handle.signal(Signal::INT);
        }
        Ok(running.is_some())
    }

    /// Ends the interpreter and the code that runs in it. The next exec gets a new interpreter.
    pub async fn restart_context(&self, by: &Principal, address: &ContextAddress) -> Result<(), Error> {
        let _shared = self.inner.session_gates.try_share(&address.session.resolve(by)?)?;
        let home = self.home_of(by, address).await?;
        if home.restart(&address.context_id) { Ok(()) } else { Err(no_context(address)) }
    }

    pub async fn delete_context(&self, by: &Principal, address: &ContextAddress) -> Result<(), Error> {
        let _shared = self.inner.session_gates.try_share(&address.session.resolve(by)?)?;
        let home = self.home_of(by, address).await?;
        if home.delete(&address.context_id) { Ok(()) } else { Err(no_context(address)) }
    }

    /// Ends the boxes of a session and waits until they are gone.
    pub(crate) async fn end_boxes(&self, session: &SessionKey) {
        for (key, home) in self.homes(session) {
            self.inner.boxes.dismiss(&key);
            home.session_box.end().await;
        }
    }

    /// The existing boxes of a session, at most one per isolation.
    pub(crate) fn homes(&self, session: &SessionKey) -> Vec<(BoxKey, Arc<PooledBox>)> {
        let keys = Isolation::ALL.map(|isolation| BoxKey::new(session, isolation));
        keys.into_iter().filter_map(|key| Some((key.clone(), self.inner.boxes.find(&key)?))).collect()
    }

    async fn home_of(&self, by: &Principal, address: &ContextAddress) -> Result<Arc<PooledBox>, Error> {
        let session = self.known_session(by, &address.session).await?;
        let homes = self.homes(&session).into_iter().map(|(_, home)| home);
        let found = homes.into_iter().find(|home| home.read(|contexts| contexts.contains_key(&address.context_id)));
        found.ok_or_else(|| no_context(address))
    }

    async fn known_session(&self, by: &Principal, session: &SessionAddress) -> Result<SessionKey, Error> {
        let session = session.resolve(by)?;
        match self.session_times(&session).await? {
            Some(_) => Ok(session),
            None => Err(Error::NotFound { what: format!("session {}", session.session_id) }),
        }
    }
}

fn no_context(address: &ContextAddress) -> Error {
    Error::NotFound { what: format!("context {}", address.context_id) }
}
