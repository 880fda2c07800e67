//! Decides whether a box may reach a host: first by its list of allowed hosts, then by requester a
//! person while the connection waits. Used for commands and browsers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use ringwall_executor::egress::Ruling;
use ringwall_ids::{AgentId, ExecId, UserId};
use ringwall_policy::{NOT_PUBLIC, Net, NetHost, NetList, UnknownHost, special_use};
use ringwall_record::Author;
use tokio::sync::OnceCell;

/// Maximum number of open and refused questions, so that a box cannot flood a person with invented
/// names.
const MAX_QUESTIONS: usize = 20;

#[derive(Debug)]
pub(crate) struct NetRule {
    net: Net,
    /// Hosts that may resolve to non-public addresses.
    lifted: NetList,
}

impl NetRule {
    pub(crate) fn new(net: Net, lifted: NetList) -> Self {
        Self { net, lifted }
    }

    /// `None` if a person has to be asked.
    pub(crate) fn judge(&self, host: &NetHost, port: u16) -> Option<Ruling> {
        let Net::Allowlist { allow, unknown } = &self.net else {
            return Some(Ruling::Refused("the box has no network".to_owned()));
        };
        if let Some(entry) = allow.find(host, port) {
            return Some(Ruling::Allowed(entry.to_string()));
        }
        match (unknown, host) {
            // Do not ask about an address that would be refused anyway.
            (UnknownHost::Ask, NetHost::Address(address))
                if special_use(*address).is_some() && self.lifted.find(host, port).is_none() =>
            {
                Some(Ruling::Refused(NOT_PUBLIC.to_owned()))
            }
            (UnknownHost::Ask, _) => None,
            (UnknownHost::Deny, _) => {
                Some(Ruling::Refused("it is not among the hosts that this box may reach (net.allow)".to_owned()))
            }
        }
    }
}

/// The exec or browser action for which a person is asked, as the question shows it.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) exec_id: ExecId,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    pub(crate) session_id: String,
    pub(crate) command: String,
    pub(crate) author: Author,
    pub(crate) policy_version: String,
}

/// One answer for all connections that wait for it.
type SharedAnswer = Arc<OnceCell<Ruling>>;

/// Asks a person about a host and waits for the answer. Must hold no strong reference to the
/// server: the gate of a box that outlives its exec can outlive the server.
type AskPerson = Box<dyn Fn(Requester, NetHost, u16) -> BoxFuture<'static, Ruling> + Send + Sync>;

/// The questions of one exec or browser action. Each host is asked about once, and the answer holds
/// until the exec or action ends. A client that disconnects withdraws the question, unless another
/// connection waits for the same host.
pub(crate) struct Questions {
    ask_person: AskPerson,
    answers: Mutex<HashMap<(NetHost, u16), SharedAnswer>>,
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl Questions {
    pub(crate) fn new(ask_person: AskPerson) -> Self {
        Self { ask_person, answers: Mutex::default() }
    }

    pub(crate) async fn ask(&self, requester: &Requester, host: NetHost, port: u16) -> Ruling {
        let answer = {
            let mut answers = self.lock();
            let is_allowed = |answer: &SharedAnswer| matches!(answer.get(), Some(Ruling::Allowed(_)));
            let count = answers.values().filter(|answer| !is_allowed(answer)).count();
            match answers.entry((host.clone(), port)) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(_) if count >= MAX_QUESTIONS => {
                    return Ruling::Refused(format!("{MAX_QUESTIONS} other hosts were asked about already"));
                }
                Entry::Vacant(new) => new.insert(Arc::default()).clone(),
            }
        };
        answer.get_or_init(|| (self.ask_person)(requester.clone(), host, port)).await.clone()
    }

    /// Called when another action starts: allowed hosts stay allowed, the others are asked about
    /// again.
    pub(crate) fn forget_refusals(&self) {
        self.lock().retain(|_, answer| matches!(answer.get(), Some(Ruling::Allowed(_))));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(NetHost, u16), SharedAnswer>> {
        self.answers.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy refuses spellings that are no host before this rule is applied.
    #[test]
    fn listed_host_is_allowed_in_any_spelling() {
        let allow = NetList::read(["good.com", "*.below.com"]).unwrap();
        let lifted = NetList::read(["10.0.0.1"]).unwrap();
        for unknown in [UnknownHost::Deny, UnknownHost::Ask] {
            let rule = NetRule::new(Net::Allowlist { allow: allow.clone(), unknown }, lifted.clone());
            let judge = |host: &str, port: u16| rule.judge(&host.parse().unwrap(), port);
            for (host, port) in [("good.com", 443), ("GOOD.com.", 80), ("a.below.com", 443)] {
                assert!(matches!(judge(host, port), Some(Ruling::Allowed(_))), "{host}:{port}");
            }
            for (host, port) in [
                ("good.com.evil.com", 443),
                ("evilgood.com", 443),
                ("a.good.com", 443),
                ("below.com", 443),
                ("good.com", 8443),
                ("8.8.8.8", 443),
                ("10.0.0.1", 443),
            ] {
                assert_eq!(judge(host, port).is_none(), unknown == UnknownHost::Ask, "{host}:{port}");
            }
            // Addresses that are always refused cause no question.
            for (host, port) in [("127.0.0.1", 80), ("[::ffff:127.0.0.1]", 80), ("10.0.0.1", 22)] {
                assert!(matches!(judge(host, port), Some(Ruling::Refused(_))), "{host}:{port}");
            }
        }
        let none = NetRule::new(Net::None, lifted);
        assert!(matches!(none.judge(&"good.com".parse().unwrap(), 443), Some(Ruling::Refused(_))));
    }
}
