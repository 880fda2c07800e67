//! The external AIO service, where there is one: where it is, its key, and the one workspace that it belongs to.
//!
//! A service is one container, and a box never serves two agents: for everybody else `aio` is a box of our own. It is said when
//! the server starts, whole or not at all, and never stored, because the key is a secret and the rest is nothing without it.

use std::str::FromStr;
use std::sync::Arc;

use ringwall_executor::aio_service::{AioError, AioService, OnCreated, ServiceUrl};
use ringwall_policy::{Grant, Secret};
use ringwall_record::{AgentId, UserId};
use serde::Deserialize;

use crate::error::Error;
use crate::exec::backend::{Backend, StartedBox};
use crate::exec::lifecycle::Exec;
use crate::exec::order::Ground;
use crate::service::Inner;
use crate::session::code::{Created, Trail};
use crate::settings::secret;

/// A value that is not shown, and not stored.
pub(crate) const AIO_KEY: &str = "aio.key";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AioPart {
    pub(crate) url: Option<String>,
    #[serde(deserialize_with = "secret")]
    pub(crate) key: Option<Secret>,
    pub(crate) user: Option<String>,
    pub(crate) agent: Option<String>,
}

/// A service and to whom it belongs.
#[derive(Debug, Clone)]
pub(crate) struct AssignedService {
    pub(crate) service: AioService,
    pub(crate) user: UserId,
    pub(crate) agent: AgentId,
}

impl Inner {
    /// The service of this workspace, if it has one.
    pub(crate) fn service_for(&self, user: &UserId, agent: &AgentId) -> Option<&AioService> {
        let assigned = self.aio.as_ref().filter(|assigned| (&assigned.user, &assigned.agent) == (user, agent));
        assigned.map(|assigned| &assigned.service)
    }
}

impl Exec {
    /// Starts its box, or its command on the service where that was chosen. Whose the service is is looked up here once more.
    pub(crate) async fn start_box(&self, grant: Grant) -> Result<StartedBox, ringwall_executor::Error> {
        let (inner, exec_id) = (&self.service.inner, self.intent.exec_id.as_str());
        let service = inner.service_for(&self.order.user_id, &self.order.agent_id);
        match (self.order.backend, &self.order.ground, service) {
            (Backend::AioService, Ground::Code(code), Some(service)) => {
                let on_created = keep_created(code.trail.clone());
                Ok(service.start(grant, exec_id, code.service_work(), on_created).await?.into())
            }
            (_, Ground::Code(code), _) if code.context().is_some() => {
                let context = code.context().unwrap_or_default();
                self.start_cell(grant, code, context).await
            }
            (Backend::Aio, Ground::Code(code), _) => self.start_in_session(grant, code).await,
            (backend, _, _) => inner.start(backend, grant, exec_id).await.map(Into::into),
        }
    }
}

/// Keeps the names of the files that code made on the service.
fn keep_created(trail: Arc<Trail>) -> OnCreated {
    Box::new(move |created| match created {
        Ok(created) => trail.created(Created::These(created)),
        Err(error) => {
            trail.created(Created::Unknown);
            tracing::warn!(%error, "could not see what code made on the AIO service");
        }
    })
}

impl AioPart {
    /// Each value for itself: they are said one after the other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(url) = &self.url {
            read_url(url)?;
        }
        if let Some(user) = &self.user {
            read::<ringwall_workspace::UserId, UserId>("aio.user", user)?;
        }
        if let Some(agent) = &self.agent {
            read::<ringwall_workspace::AgentId, AgentId>("aio.agent", agent)?;
        }
        Ok(())
    }

    /// The service that all four name; nothing where none is said.
    pub(crate) fn assigned(&self) -> Result<Option<AssignedService>, Error> {
        let (url, key, user, agent) = match (&self.url, &self.key, &self.user, &self.agent) {
            (None, None, None, None) => return Ok(None),
            (Some(url), Some(key), Some(user), Some(agent)) => (url, key, user, agent),
            (url, key, user, agent) => {
                let said = [url.is_some(), key.is_some(), user.is_some(), agent.is_some()];
                let names = ["aio.url", AIO_KEY, "aio.user", "aio.agent"].into_iter().zip(said);
                let missing: Vec<&str> = names.filter(|(_, is_said)| !is_said).map(|(name, _)| name).collect();
                let message = format!(
                    "an AIO service needs all of aio.url, aio.key, aio.user and aio.agent; missing: {}",
                    missing.join(", ")
                );
                return Err(Error::invalid(message));
            }
        };
        let service = AioService::new(read_url(url)?, key).map_err(|error| wrong(AIO_KEY, &error))?;
        Ok(Some(AssignedService {
            service,
            user: read::<ringwall_workspace::UserId, _>("aio.user", user)?,
            agent: read::<ringwall_workspace::AgentId, _>("aio.agent", agent)?,
        }))
    }
}

fn read_url(text: &str) -> Result<ServiceUrl, Error> {
    text.parse().map_err(|error| wrong("aio.url", &error))
}

/// A name that a workspace can have, for the record.
fn read<Name, T>(key: &str, text: &str) -> Result<T, Error>
where
    Name: FromStr<Err = ringwall_workspace::Error>,
    T: FromStr<Err = ringwall_record::Error>,
{
    text.parse::<Name>().map_err(|error| Error::invalid(format!("{key}: {error}")))?;
    text.parse().map_err(|error| Error::invalid(format!("{key}: {error}")))
}

fn wrong(key: &str, error: &AioError) -> Error {
    Error::invalid(format!("{key}: {error}; {}", error.hint()))
}
