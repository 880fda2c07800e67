//! Says of each host whether a browser may reach it, and keeps what became of its connections until an action takes them along.
//!
//! Redirects, frames, scripts and windows that a page opens all come by here. Where a *name* leads is judged by the proxy, of
//! the very address that it connects to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use executor::egress::{Connection, Fate, Gate, Ruling};
use futures::future::BoxFuture;
use policy::{Net, NetHost, NetList, special_use};
use serde_json::{Value, json};

use crate::egress::ConnectionView;

/// Connections that are kept one by one between two actions.
const KEPT: usize = 200;

/// Where Chromium goes by itself, for no page: with what was typed, or to fetch parts of itself.
const ERRANDS: [&str; 6] = [
    "clients2.google.com",
    "content-autofill.googleapis.com",
    "optimizationguide-pa.googleapis.com",
    "passwordsleakcheck-pa.googleapis.com",
    "safebrowsing.googleapis.com",
    "update.googleapis.com",
];

/// What may be reached.
#[derive(Debug)]
pub(super) enum Reach {
    /// The public internet, and hosts that are lifted.
    Public { lifted: NetList },
    /// What the session's code may reach.
    AsCode(Net),
}

#[derive(Debug)]
pub(super) struct BrowserGate {
    reach: Reach,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    kept: Vec<ConnectionView>,
    left_out: u64,
    refused: Vec<Refused>,
}

/// A host that was refused, and why.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) why: String,
}

impl BrowserGate {
    pub(super) fn new(reach: Reach) -> Self {
        Self { reach, noted: Mutex::default() }
    }

    /// What was refused since this was last asked or taken.
    pub(super) fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.lock().refused)
    }

    /// What became of connections since the last time, for the record.
    pub(super) fn take(&self) -> Value {
        let Noted { kept, left_out, .. } = std::mem::take(&mut *self.lock());
        let mut list: Vec<Value> = kept.into_iter().map(|connection| json!(connection)).collect();
        if left_out > 0 {
            list.push(json!({ "left_out": left_out }));
        }
        Value::Array(list)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for BrowserGate {
    fn judge(&self, host: NetHost, port: u16) -> BoxFuture<'_, Ruling> {
        let ruling = match &self.reach {
            Reach::Public { lifted } => match &host {
                _ if lifted.find(&host, port).is_some() => Ruling::Allowed("browser.allowed_hosts".to_owned()),
                NetHost::Name(name) if ERRANDS.contains(&name.as_str()) => {
                    Ruling::Refused("it is an errand of Chromium's own, and no page's".to_owned())
                }
                NetHost::Address(address) if special_use(*address).is_some() => {
                    Ruling::Refused("it is no address of the public internet".to_owned())
                }
                NetHost::Address(_) | NetHost::Name(_) => Ruling::Allowed("a host of the public internet".to_owned()),
            },
            Reach::AsCode(Net::Allowlist { allow, .. }) => match allow.find(&host, port) {
                Some(entry) => Ruling::Allowed(entry.to_string()),
                None => Ruling::Refused("it is not among the hosts that this box may reach (net.allow)".to_owned()),
            },
            Reach::AsCode(Net::None) => Ruling::Refused("the box has no network".to_owned()),
        };
        Box::pin(std::future::ready(ruling))
    }

    fn note(&self, connection: Connection) {
        let mut noted = self.lock();
        let is_errand = ERRANDS.contains(&connection.host.as_str());
        if connection.fate == Fate::Refused && !is_errand && noted.refused.len() < KEPT {
            let Connection { host, port, reason, .. } = &connection;
            let refused = Refused { host: host.clone(), port: *port, why: reason.clone() };
            noted.refused.push(refused);
        }
        if noted.kept.len() < KEPT {
            noted.kept.push(connection.into());
        } else {
            noted.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use policy::Unknown;

    use super::*;

    fn list(entries: &[&str]) -> NetList {
        NetList::read(entries).unwrap()
    }

    async fn is_allowed(gate: &BrowserGate, host: &str, port: u16) -> bool {
        matches!(gate.judge(host.parse().unwrap(), port).await, Ruling::Allowed(_))
    }

    /// Spellings that are no host at all are refused before anybody is asked; the proxy reads them.
    #[tokio::test]
    async fn a_sandbox_browser_reaches_what_is_listed_however_it_is_spelt() {
        let net = Net::Allowlist { allow: list(&["good.com", "*.below.com"]), unknown: Unknown::Deny };
        let gate = BrowserGate::new(Reach::AsCode(net));
        for (host, port) in [("good.com", 443), ("GOOD.com.", 80), ("a.below.com", 443)] {
            assert!(is_allowed(&gate, host, port).await, "{host}:{port}");
        }
        for (host, port) in [
            ("good.com.evil.com", 443),
            ("evilgood.com", 443),
            ("a.good.com", 443),
            ("below.com", 443),
            ("good.com", 8443),
            ("8.8.8.8", 443),
            ("127.0.0.1", 80),
            ("[::ffff:127.0.0.1]", 80),
        ] {
            assert!(!is_allowed(&gate, host, port).await, "{host}:{port}");
        }
        assert!(!is_allowed(&BrowserGate::new(Reach::AsCode(Net::None)), "good.com", 443).await);
    }

    #[tokio::test]
    async fn an_external_browser_reaches_the_public_internet_and_what_is_lifted() {
        let gate = BrowserGate::new(Reach::Public { lifted: list(&["127.0.0.1:8080", "wiki.corp.example"]) });
        for (host, port) in [("good.com", 443), ("8.8.8.8", 53), ("127.0.0.1", 8080), ("WIKI.corp.example.", 443)] {
            assert!(is_allowed(&gate, host, port).await, "{host}:{port}");
        }
        for (host, port) in [
            ("127.0.0.1", 80),
            ("127.0.0.2", 8080),
            ("[::ffff:127.0.0.1]", 8080),
            ("[::1]", 8080),
            ("169.254.169.254", 80),
            ("10.0.0.1", 443),
            ("update.googleapis.com", 443),
        ] {
            assert!(!is_allowed(&gate, host, port).await, "{host}:{port}");
        }
    }
}
