//! Decides for each host whether a browser may reach it, and collects the results of its
//! connections until an action takes them.
//!
//! Redirects, frames, scripts and windows that a page opens all pass this gate. The proxy checks
//! the address that a *name* resolves to, which is the one that it connects to. Questions to a
//! person are asked for the current action only.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use ringwall_executor::egress::{Connection, Fate, Gate, Ruling};
use ringwall_policy::{ExternalMode, NetHost, NetList};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::egress::{BoxGate, ConnectionView, NetRule, Questions, Requester};

/// Maximum number of connections listed between two actions; further ones are only counted.
const MAX_LISTED: usize = 200;
/// How long `close` waits for the connections of an ended browser.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Hosts that Chromium contacts on its own rather than for a page, to send typed text or to
/// download components.
const BACKGROUND_HOSTS: [&str; 6] = [
    "clients2.google.com",
    "content-autofill.googleapis.com",
    "optimizationguide-pa.googleapis.com",
    "passwordsleakcheck-pa.googleapis.com",
    "safebrowsing.googleapis.com",
    "update.googleapis.com",
];

/// The hosts that a browser may reach.
pub(crate) enum Reach {
    /// The current setting for external browsers, and the hosts of `browser.allowed_hosts`.
    Public { lifted: NetList, external: Box<dyn Fn() -> ExternalMode + Send + Sync> },
    /// The same rules as for the session's code.
    AsCode { rule: NetRule, questions: Questions },
}

impl fmt::Debug for Reach {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::Public { lifted, .. } => {
                formatter.debug_struct("Public").field("lifted", lifted).finish_non_exhaustive()
            }
            Reach::AsCode { rule, .. } => formatter.debug_struct("AsCode").field("rule", rule).finish_non_exhaustive(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct BrowserGate {
    reach: Reach,
    /// The current action.
    acting: watch::Sender<Option<Arc<Requester>>>,
    /// Number of connections that have begun and not ended.
    open: watch::Sender<usize>,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    kept: Vec<ConnectionView>,
    left_out: u64,
    refused: Vec<Refused>,
    /// No action takes the connections any more; they are only logged.
    is_closed: bool,
}

/// A refused host and the reason.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) why: String,
}

/// The action is current until this is dropped.
#[derive(Debug)]
pub(crate) struct CurrentAction(Arc<BrowserGate>);

impl Drop for CurrentAction {
    fn drop(&mut self) {
        self.0.acting.send_replace(None);
    }
}

impl BrowserGate {
    pub(crate) fn new(reach: Reach) -> Self {
        let (acting, open) = (watch::Sender::new(None), watch::Sender::new(0));
        Self { reach, acting, open, noted: Mutex::default() }
    }

    /// Makes this action the current one. Forgets the hosts that were refused before, so that a
    /// person is asked about them again.
    pub(crate) fn begin(self: &Arc<Self>, requester: Requester) -> CurrentAction {
        if let Reach::AsCode { questions, .. } = &self.reach {
            questions.forget_refusals();
        }
        self.lock().refused.clear();
        self.acting.send_replace(Some(Arc::new(requester)));
        CurrentAction(self.clone())
    }

    /// Asks about a page's host before Chromium connects: Chromium waits for seconds, a person
    /// takes minutes to answer.
    pub(crate) async fn ask_ahead(&self, host: NetHost, port: u16) {
        if let Reach::AsCode { rule, .. } = &self.reach
            && rule.judge(&host, port).is_none()
        {
            self.judge(host, port).await;
        }
    }

    /// Takes the hosts that were refused since the action began or since the last call.
    pub(crate) fn take_refused(&self) -> Vec<Refused> {
        std::mem::take(&mut self.lock().refused)
    }

    /// Takes the results of connections since the last call, for the record.
    pub(crate) fn take(&self) -> Value {
        let (kept, left_out) = {
            let mut noted = self.lock();
            (std::mem::take(&mut noted.kept), std::mem::take(&mut noted.left_out))
        };
        let mut list: Vec<Value> = kept.into_iter().map(|connection| json!(connection)).collect();
        if left_out > 0 {
            list.push(json!({ "left_out": left_out }));
        }
        Value::Array(list)
    }

    /// Takes the last connections of a browser that has ended. Waits up to 2 s until they are over.
    pub(crate) async fn close(&self) -> Value {
        let mut open = self.open.subscribe();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, open.wait_for(|open| *open == 0)).await;
        self.lock().is_closed = true;
        self.take()
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock()
    }
}

fn is_background_host(host: &str) -> bool {
    BACKGROUND_HOSTS.contains(&host)
}

fn background_host() -> Ruling {
    Ruling::Refused("Chromium contacts this host on its own, not for a page".to_owned())
}

/// Asks a person about a host. Stops when the current action is over.
async fn ask(
    acting: &watch::Sender<Option<Arc<Requester>>>,
    questions: &Questions,
    host: NetHost,
    port: u16,
) -> Ruling {
    let mut now = acting.subscribe();
    let requester = now.borrow_and_update().clone();
    let Some(requester) = requester else {
        return Ruling::Refused("nobody is asked about it, because no action is running".to_owned());
    };
    tokio::select! {
        biased;
        ruling = questions.ask(&requester, host, port) => ruling,
        _ = now.changed() => Ruling::Refused("the action that asked about it has ended".to_owned()),
    }
}

impl Gate for BrowserGate {
    fn judge(&self, host: NetHost, port: u16) -> BoxFuture<'_, Ruling> {
        let ruling = match &self.reach {
            Reach::Public { lifted, external } => match (external(), lifted.find(&host, port)) {
                (ExternalMode::On | ExternalMode::Allowlist, Some(_)) => {
                    Ruling::Allowed("browser.allowed_hosts".to_owned())
                }
                (ExternalMode::On, None) if is_background_host(&host.to_string()) => background_host(),
                (mode, _) => match mode.refusal(&host, port) {
                    Some(why) => Ruling::Refused(why),
                    None => Ruling::Allowed("a host of the public internet".to_owned()),
                },
            },
            Reach::AsCode { rule, questions } => match rule.judge(&host, port) {
                Some(known) => known,
                None if is_background_host(&host.to_string()) => background_host(),
                None => return Box::pin(ask(&self.acting, questions, host, port)),
            },
        };
        Box::pin(std::future::ready(ruling))
    }

    fn began(&self) {
        self.open.send_modify(|open| *open += 1);
    }

    fn note(&self, connection: Connection) {
        let mut noted = self.lock();
        if connection.fate == Fate::Refused && !is_background_host(&connection.host) && noted.refused.len() < MAX_LISTED
        {
            let Connection { host, port, reason, .. } = &connection;
            let refused = Refused { host: host.clone(), port: *port, why: reason.clone() };
            noted.refused.push(refused);
        }
        if noted.kept.len() < MAX_LISTED {
            noted.kept.push(connection.into());
        } else {
            noted.left_out += 1;
        }
        let is_closed = noted.is_closed;
        if is_closed {
            tracing::warn!(connections = ?std::mem::take(&mut noted.kept), "connections were reported after their browser had ended");
        }
        drop(noted);
        self.open.send_modify(|open| *open = open.saturating_sub(1));
    }
}

impl BoxGate for BrowserGate {
    fn is_over(&self) -> bool {
        self.acting.borrow().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(mode: ExternalMode) -> BrowserGate {
        let lifted = NetList::read(["127.0.0.1:8080", "wiki.corp.example", "mail.corp.example:25"]).unwrap();
        BrowserGate::new(Reach::Public { lifted, external: Box::new(move || mode) })
    }

    async fn refused(gate: &BrowserGate, host: &str, port: u16) -> Option<String> {
        match gate.judge(host.parse().unwrap(), port).await {
            Ruling::Allowed(_) => None,
            Ruling::Refused(why) => Some(why),
        }
    }

    #[tokio::test]
    async fn external_browser_reaches_public_and_allowed_hosts() {
        let gate = external(ExternalMode::On);
        for (host, port) in [
            ("good.com", 443),
            ("8.8.8.8", 8443),
            ("127.0.0.1", 8080),
            ("WIKI.corp.example.", 443),
            ("mail.corp.example", 25),
        ] {
            assert_eq!(refused(&gate, host, port).await, None, "{host}:{port}");
        }
        for (host, port) in [
            ("127.0.0.1", 80),
            ("127.0.0.2", 8080),
            ("[::ffff:127.0.0.1]", 8080),
            ("[::1]", 8080),
            ("169.254.169.254", 80),
            ("10.0.0.1", 443),
            ("update.googleapis.com", 443),
            // Other ports are refused: a hijacked browser could send mail or try logins.
            ("good.com", 25),
            ("good.com", 22),
            ("8.8.8.8", 53),
        ] {
            assert!(refused(&gate, host, port).await.is_some(), "{host}:{port}");
        }
    }

    #[tokio::test]
    async fn external_mode_restricts_or_disables_browser() {
        for (mode, words) in
            [(ExternalMode::Allowlist, "browser.allowed_hosts"), (ExternalMode::Off, "browser.external")]
        {
            let gate = external(mode);
            assert_eq!(refused(&gate, "wiki.corp.example", 443).await.is_none(), mode == ExternalMode::Allowlist);
            for host in ["good.com", "8.8.8.8"] {
                let why = refused(&gate, host, 443).await.unwrap();
                assert!(why.contains(words), "{why}");
            }
        }
    }
}
