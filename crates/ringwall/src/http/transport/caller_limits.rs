//! Limits per caller on requests in progress, on event streams and downloads, and on WebSockets, so
//! that no caller can use all connections. A user's tokens and those of the user's agents count as
//! one caller.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::StatusCode;
use parking_lot::Mutex;
use ringwall_service::{Holder, Principal};

use super::problem::Problem;

/// The kinds of requests that have a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Requests in progress: half of the connections, at most 2048.
    Requests,
    /// Event streams, downloads and `/mcp`, which last as long as the caller likes: a quarter of
    /// the connections, at most 256.
    Streams,
    /// WebSockets: half of the connections, at most 2048. A console page keeps one open and
    /// transfers little.
    Sockets,
}

impl Kind {
    fn limit(self, max_connections: usize) -> usize {
        let (part, max) = match self {
            Kind::Requests | Kind::Sockets => (2, 2048),
            Kind::Streams => (4, 256),
        };
        (max_connections / part).clamp(1, max)
    }

    fn refuse(self, open: usize) -> Problem {
        let (code, message, hint) = match self {
            Kind::Requests => (
                "TOO_MANY_REQUESTS",
                format!("{open} of your requests are in progress, which is the limit"),
                "wait until one ends; with `Prefer: respond-async` a request ends before its exec does",
            ),
            Kind::Streams | Kind::Sockets => (
                "TOO_MANY_STREAMS",
                format!("{open} of your streams and downloads are open, which is the limit"),
                "close some; GET …/stdout with an offset reads output without a stream",
            ),
        };
        Problem::new(StatusCode::TOO_MANY_REQUESTS, code, message).with_hint(hint)
    }
}

#[derive(Debug)]
pub(crate) struct CallerLimit {
    kind: Kind,
    limit: usize,
    open: Mutex<HashMap<String, usize>>,
}

/// One counted request, stream or socket. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct CallerPermit {
    limits: Arc<CallerLimit>,
    caller: String,
}

impl CallerLimit {
    pub(crate) fn new(kind: Kind, max_connections: usize) -> Arc<Self> {
        Arc::new(Self { kind, limit: kind.limit(max_connections), open: Mutex::default() })
    }

    pub(crate) fn acquire(self: &Arc<Self>, by: &Principal) -> Result<CallerPermit, Problem> {
        self.count(caller_key(by))
    }

    fn count(self: &Arc<Self>, caller: String) -> Result<CallerPermit, Problem> {
        let mut open = self.open.lock();
        let count = open.entry(caller.clone()).or_default();
        if *count >= self.limit {
            return Err(self.kind.refuse(*count));
        }
        *count += 1;
        Ok(CallerPermit { limits: self.clone(), caller })
    }
}

/// The caller that a request counts for: the user, or the token of an operator or owner.
pub(crate) fn caller_key(by: &Principal) -> String {
    match by.holder() {
        Holder::User(user) | Holder::Agent(user, _) => format!("user {user}"),
        Holder::Owner | Holder::Operator => format!("token {}", by.caller()),
    }
}

impl Drop for CallerPermit {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock();
        if let Some(count) = open.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_at_its_limit_does_not_block_others() {
        let answers = CallerLimit::new(Kind::Streams, 8);
        let count = |caller: &str| answers.count(caller.to_owned());
        let (one, _two) = (count("a").unwrap(), count("a").unwrap());
        assert_eq!(count("a").unwrap_err().code(), "TOO_MANY_STREAMS");
        let other = count("b").unwrap();
        drop(one);
        assert!(count("a").is_ok());
        drop(other);
        assert_eq!(answers.open.lock().len(), 1, "callers without an open stream are forgotten");
    }

    #[test]
    fn limit_is_a_fraction_of_the_connections() {
        let limits = |kind: Kind| [1, 3, 16, 100_000].map(|connections| kind.limit(connections));
        assert_eq!(limits(Kind::Streams), [1, 1, 4, 256]);
        assert_eq!(limits(Kind::Requests), [1, 1, 8, 2048]);
        assert_eq!(limits(Kind::Sockets), [1, 1, 8, 2048]);
    }
}
