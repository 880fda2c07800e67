//! Settings of the external AIO service: its URL, its key, and the workspace that it is assigned
//! to.
//!
//! A service is one container, and a box never serves two agents, so for all other workspaces `aio`
//! is a session box of our own. The four settings are set in the start-up configuration, all or
//! none. They are never stored, because the key is a secret.

use std::str::FromStr;

use ringwall_executor::aio_service::{AioError, AioService, ServiceUrl};
use ringwall_ids::{AgentId, IdError, UserId};
use ringwall_policy::Secret;
use serde::Deserialize;

use super::document::secret;
use crate::error::Error;

/// A secret: neither shown nor stored.
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

/// A service and its workspace.
#[derive(Debug, Clone)]
pub(crate) struct AssignedService {
    pub(crate) service: AioService,
    pub(crate) user: UserId,
    pub(crate) agent: AgentId,
}

impl AioPart {
    /// Checks each value alone, because start-up settings are set one after the other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.url.as_deref().map(read_url).transpose()?;
        self.user.as_deref().map(|user| read::<UserId>("aio.user", user)).transpose()?;
        self.agent.as_deref().map(|agent| read::<AgentId>("aio.agent", agent)).transpose()?;
        Ok(())
    }

    /// The service, if all four settings are set; `None` if none is.
    pub(crate) fn assigned(&self) -> Result<Option<AssignedService>, Error> {
        let (url, key, user, agent) = match (&self.url, &self.key, &self.user, &self.agent) {
            (None, None, None, None) => return Ok(None),
            (Some(url), Some(key), Some(user), Some(agent)) => (url, key, user, agent),
            (url, key, user, agent) => {
                let is_set = [url.is_some(), key.is_some(), user.is_some(), agent.is_some()];
                let keys = ["aio.url", AIO_KEY, "aio.user", "aio.agent"].into_iter().zip(is_set);
                let missing: Vec<&str> = keys.filter(|(_, is_set)| !is_set).map(|(key, _)| key).collect();
                return Err(Error::invalid(format!(
                    "an AIO service needs all of aio.url, aio.key, aio.user and aio.agent; missing: {}",
                    missing.join(", ")
                )));
            }
        };
        let service = AioService::new(read_url(url)?, key).map_err(|error| wrong(AIO_KEY, &error))?;
        Ok(Some(AssignedService { service, user: read("aio.user", user)?, agent: read("aio.agent", agent)? }))
    }
}

fn read_url(text: &str) -> Result<ServiceUrl, Error> {
    text.parse().map_err(|error| wrong("aio.url", &error))
}

fn read<Id: FromStr<Err = IdError>>(key: &str, text: &str) -> Result<Id, Error> {
    text.parse().map_err(|error| Error::invalid(format!("{key}: {error}")))
}

fn wrong(key: &str, error: &AioError) -> Error {
    Error::invalid(format!("{key}: {error}; {}", error.hint()))
}
