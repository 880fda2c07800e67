//! Opens the files of the agent that a route names, if the caller may use them.
//!
//! A malformed id is an error for every caller. A workspace of another user does not exist for the
//! caller.

use ringwall_ids::{AgentId, UserId};
use ringwall_record::Holder;
use ringwall_workspace::Tree;

use crate::auth::principal::{DEFAULT, Principal};
use crate::blocking;
use crate::error::Error;
use crate::service::Service;
use crate::workspace_locks::{Reading, Writing};

use super::checkout::Purpose;

/// The user and agent that a route names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// If missing: the caller's own user, or `default` for owners and operators.
    pub user: Option<String>,
    pub agent: String,
}

/// An agent whose files are open.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) user: UserId,
    pub(crate) agent: AgentId,
    pub(crate) tree: Tree,
}

impl Service {
    /// Opens the files of an agent, which need not be created first, and checks out its baselines.
    pub(crate) async fn open_agent(&self, by: &Principal, address: &Address) -> Result<Agent, Error> {
        self.open_synced(by, address, Purpose::Changing).await
    }

    async fn open_synced(&self, by: &Principal, address: &Address, purpose: Purpose) -> Result<Agent, Error> {
        let (user, agent) = by.address(address)?;
        let owner = self.owner_of(&user, &agent).await?;
        let workspaces = &self.inner.workspaces;
        let tree = blocking::in_place(|| {
            let workspace = workspaces.workspace(&user, &agent, owner)?;
            Ok(workspace.tree()?)
        })
        .await?;
        let agent = Agent { user, agent, tree };
        self.sync_agent(&agent, purpose).await?;
        Ok(agent)
    }

    /// Opens an agent under a read lock.
    pub(crate) async fn read_agent(&self, by: &Principal, address: &Address) -> Result<(Agent, Reading), Error> {
        let agent = self.open_synced(by, address, Purpose::Reading).await?;
        let reading = self.inner.agent_locks.read(&agent.user, &agent.agent).await?;
        Ok((agent, reading))
    }

    /// Opens an agent under the write lock. Boxes may run meanwhile.
    pub(crate) async fn change_agent(&self, by: &Principal, address: &Address) -> Result<(Agent, Writing), Error> {
        let agent = self.open_agent(by, address).await?;
        let writing = self.inner.agent_locks.write(&agent.user, &agent.agent).await?;
        Ok((agent, writing))
    }
}

impl Principal {
    /// The ids of an address, if the caller may use them.
    fn address(&self, address: &Address) -> Result<(UserId, AgentId), Error> {
        let own = match &self.holder {
            Holder::Owner | Holder::Operator => DEFAULT,
            Holder::User(own) | Holder::Agent(own, _) => own.as_str(),
        };
        let (user, agent) = (address.user.as_deref().unwrap_or(own), address.agent.as_str());
        let (user, agent) = (user.parse()?, agent.parse()?);
        if self.sees(&user, &agent) {
            Ok((user, agent))
        } else {
            Err(Error::NotFound { what: format!("agent {agent}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_other_user_is_not_found() {
        let (user, agent): (UserId, AgentId) = ("u".parse().unwrap(), "a".parse().unwrap());
        let found = |holder: &Holder, user: Option<&str>, agent: &str| {
            let principal = Principal::new("t", holder.clone());
            let address = Address { user: user.map(str::to_owned), agent: agent.to_owned() };
            let found = principal.address(&address);
            found.map(|(user, agent)| format!("{user}/{agent}")).map_err(|error| error.code())
        };
        let holders = [Holder::Owner, Holder::Operator, Holder::User(user.clone()), Holder::Agent(user, agent)];
        let all = |user, agent| holders.each_ref().map(|holder| found(holder, user, agent).ok());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(all(None, "a"), [some("default/a"), some("default/a"), some("u/a"), some("u/a")]);
        assert_eq!(all(None, "b"), [some("default/b"), some("default/b"), some("u/b"), None]);
        assert_eq!(all(Some("u"), "a"), [some("u/a"), some("u/a"), some("u/a"), some("u/a")]);
        assert_eq!(all(Some("v"), "a"), [some("v/a"), some("v/a"), None, None]);
        for holder in &holders {
            for (user, agent) in [(None, "skills"), (None, "a..b"), (None, ""), (Some(".."), "a"), (Some(""), "a")] {
                assert_eq!(found(holder, user, agent), Err("INVALID_ARGUMENT"), "{holder:?} {user:?} {agent:?}");
            }
        }
        assert_eq!(found(&holders[3], None, "b"), Err("NOT_FOUND"));
    }
}
