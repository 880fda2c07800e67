//! The caller of a request and its permissions.
//!
//! An owner may do everything; an operator sees all agents and changes settings; a user has their
//! own agents; an agent has only its own workspace. Objects that a caller may not see are reported
//! as not found; actions that it may not perform on visible objects fail with `Forbidden`.

use ringwall_ids::{AgentId, UserId};
use ringwall_record::{Author, Holder, Scope};

use crate::auth::origin::Origin;
use crate::error::Error;

pub(crate) const DEFAULT: &str = "default";

/// An authenticated caller. Created by [`crate::Service::authenticate`] and the other
/// authentication methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub(crate) caller: String,
    pub(crate) holder: Holder,
    pub(crate) origin: Origin,
}

impl Principal {
    pub(crate) fn new(caller: impl Into<String>, holder: Holder) -> Self {
        Self { caller: caller.into(), holder, origin: Origin::INSIDE }
    }

    /// Sets the origin of the request.
    #[must_use]
    pub fn through(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// The author for the record: id, role and origin.
    pub(crate) fn author(&self) -> Author {
        let mut from = self.origin.note();
        from["role"] = self.holder.role().into();
        Author { by: self.caller.clone(), from }
    }

    /// The id of the token, as recorded.
    pub fn caller(&self) -> &str {
        &self.caller
    }

    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    pub(crate) fn scope(&self) -> Scope {
        match &self.holder {
            Holder::Owner | Holder::Operator => Scope::All,
            Holder::User(user) => Scope::User(user.clone()),
            Holder::Agent(user, agent) => Scope::Agent(user.clone(), agent.clone()),
        }
    }

    pub(crate) fn sees(&self, user: &UserId, agent: &AgentId) -> bool {
        match &self.holder {
            Holder::Owner | Holder::Operator => true,
            Holder::User(own) => own == user,
            Holder::Agent(own, own_agent) => own == user && own_agent == agent,
        }
    }

    /// The workspace of a request: the caller's own or the named one. Rejects names that the
    /// caller's token does not belong to.
    pub(crate) fn workspace(&self, user: Option<&str>, agent: Option<&str>) -> Result<(UserId, AgentId), Error> {
        let (own_user, own_agent) = match &self.holder {
            Holder::Owner | Holder::Operator => (None, None),
            Holder::User(own) => (Some(own.as_str()), None),
            Holder::Agent(own, own_agent) => (Some(own.as_str()), Some(own_agent.as_str())),
        };
        let user = own_or_named("user_id", own_user, user)?;
        let agent = own_or_named("agent_id", own_agent, agent)?;
        Ok((user.parse()?, agent.parse()?))
    }

    pub(crate) fn require_operator(&self, doing: &str) -> Result<(), Error> {
        match self.holder {
            Holder::Owner | Holder::Operator => Ok(()),
            Holder::User(_) | Holder::Agent(..) => {
                Err(Error::Forbidden { why: format!("only an owner or an operator may {doing}") })
            }
        }
    }

    pub(crate) fn require_owner(&self, doing: &str) -> Result<(), Error> {
        match self.holder {
            Holder::Owner => Ok(()),
            Holder::Operator | Holder::User(_) | Holder::Agent(..) => {
                Err(Error::Forbidden { why: format!("only an owner may {doing}") })
            }
        }
    }
}

fn own_or_named<'a>(key: &str, own: Option<&'a str>, named: Option<&'a str>) -> Result<&'a str, Error> {
    match (own, named) {
        (Some(own), Some(named)) if own != named => {
            Err(Error::Forbidden { why: format!("this token does not belong to the {key} that the request names") })
        }
        (Some(own), _) => Ok(own),
        (None, named) => Ok(named.unwrap_or(DEFAULT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(holder: Holder) -> Principal {
        Principal::new("t", holder)
    }

    #[test]
    fn workspace_of_request_is_own_or_named() {
        let (user, agent): (UserId, AgentId) = ("u".parse().unwrap(), "a".parse().unwrap());
        let pair = |principal: &Principal, user, agent| {
            principal
                .workspace(user, agent)
                .map(|(user, agent)| format!("{user}/{agent}"))
                .map_err(|error| error.code())
        };
        let owner = principal(Holder::Owner);
        assert_eq!(pair(&owner, None, None), Ok("default/default".into()));
        assert_eq!(pair(&owner, Some("x"), Some("y")), Ok("x/y".into()));
        assert_eq!(pair(&owner, Some(".."), None), Err("INVALID_ARGUMENT"));
        assert_eq!(pair(&owner, None, Some("skills")), Err("INVALID_ARGUMENT"));
        let own = principal(Holder::User(user.clone()));
        assert_eq!(pair(&own, None, Some("y")), Ok("u/y".into()));
        assert_eq!(pair(&own, Some("x"), None), Err("FORBIDDEN"));
        let one = principal(Holder::Agent(user, agent));
        assert_eq!(pair(&one, None, None), Ok("u/a".into()));
        assert_eq!(pair(&one, Some("u"), Some("a")), Ok("u/a".into()));
        assert_eq!(pair(&one, None, Some("b")), Err("FORBIDDEN"));
    }

    #[test]
    fn principal_sees_only_permitted_agents() {
        let (user, agent): (UserId, AgentId) = ("u".parse().unwrap(), "a".parse().unwrap());
        let (other, other_agent): (UserId, AgentId) = ("v".parse().unwrap(), "b".parse().unwrap());
        let own = principal(Holder::User(user.clone()));
        assert!(own.sees(&user, &other_agent) && !own.sees(&other, &agent));
        let one = principal(Holder::Agent(user.clone(), agent.clone()));
        assert!(one.sees(&user, &agent) && !one.sees(&user, &other_agent) && !one.sees(&other, &agent));
        assert!(principal(Holder::Operator).sees(&other, &other_agent));
        assert!(principal(Holder::Operator).require_operator("x").is_ok());
        assert!(principal(Holder::Operator).require_owner("x").is_err());
        assert!(one.require_operator("x").is_err());
    }
}
