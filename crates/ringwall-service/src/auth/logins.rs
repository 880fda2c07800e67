//! Logins: a browser presents a token once and then uses a random text that expires and can be
//! revoked.
//!
//! A login has no rights of its own. It stores the hash of its token, and every request checks that
//! the token is still valid, so revoking the token ends the login. Only hashes are stored, and only
//! in memory: a restart ends all logins. A *code* starts one login as the owner within 10 minutes;
//! it is meant for the person at the terminal in which the server was started.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ringwall_record::Digest;
use tokio::sync::watch;

use crate::auth::principal::Principal;

/// Lifetime of a login, whether it is used or not.
pub const LOGIN_LASTS: Duration = Duration::from_secs(12 * 60 * 60);
/// Lifetime of a login code.
const CODE_LASTS: Duration = Duration::from_secs(10 * 60);
/// Maximum number of logins per token. A new one replaces the oldest.
const MAX_PER_TOKEN: usize = 32;

/// A new login with its text, which later requests present.
pub struct BegunLogin {
    pub principal: Principal,
    pub text: String,
}

impl fmt::Debug for BegunLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BegunLogin").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// Logins by the hash of their text, and unused codes.
#[derive(Default)]
pub(crate) struct Logins {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    logins: HashMap<Digest, Login>,
    codes: HashMap<Digest, Lasting>,
}

/// The token and the expiry time of a login or code.
#[derive(Clone, Copy)]
struct Lasting {
    token: Digest,
    ends: Instant,
}

/// A login. Dropping it notifies its [`HeldLogin`]s.
struct Login {
    lasting: Lasting,
    over: watch::Sender<()>,
}

/// The login of a connection that outlives one request.
#[derive(Debug, Clone)]
pub struct HeldLogin {
    over: watch::Receiver<()>,
    ends: Instant,
}

impl HeldLogin {
    /// Waits for the logout or the expiry.
    pub async fn ended(mut self) {
        let logged_out = async { while self.over.changed().await.is_ok() {} };
        let _ = tokio::time::timeout_at(self.ends.into(), logged_out).await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.has_changed().is_err() || Instant::now() >= self.ends
    }
}

impl Logins {
    pub(crate) fn begin(&self, text: &str, token: Digest, now: Instant) {
        let mut table = self.table.lock();
        table.logins.retain(|_, login| now < login.lasting.ends);
        let of_token = table.logins.iter().filter(|(_, login)| login.lasting.token == token);
        if of_token.clone().count() >= MAX_PER_TOKEN {
            let oldest = of_token.min_by_key(|(_, login)| login.lasting.ends).map(|(text, _)| *text);
            oldest.map(|text| table.logins.remove(&text));
        }
        let login = Login { lasting: Lasting { token, ends: now + LOGIN_LASTS }, over: watch::Sender::default() };
        table.logins.insert(Digest::of(text.as_bytes()), login);
    }

    pub(crate) fn find(&self, text: &str, now: Instant) -> Option<(Digest, HeldLogin)> {
        let table = self.table.lock();
        let Login { lasting, over } = table.logins.get(&Digest::of(text.as_bytes()))?;
        let held = HeldLogin { over: over.subscribe(), ends: lasting.ends };
        (now < lasting.ends).then_some((lasting.token, held))
    }

    pub(crate) fn end(&self, text: &str) {
        self.table.lock().logins.remove(&Digest::of(text.as_bytes()));
    }

    pub(crate) fn add_code(&self, text: &str, token: Digest, now: Instant) {
        let mut table = self.table.lock();
        table.codes.retain(|_, code| now < code.ends);
        table.codes.insert(Digest::of(text.as_bytes()), Lasting { token, ends: now + CODE_LASTS });
    }

    /// Removes the code even if it has expired: a code can be used once.
    pub(crate) fn take_code(&self, text: &str, now: Instant) -> Option<Digest> {
        let found = self.table.lock().codes.remove(&Digest::of(text.as_bytes()));
        found.filter(|code| now < code.ends).map(|code| code.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_of(logins: &Logins, text: &str, now: Instant) -> Option<Digest> {
        logins.find(text, now).map(|(token, _)| token)
    }

    #[tokio::test]
    async fn held_login_ends_with_logout_and_deadline() {
        let (logins, token, now) = (Logins::default(), Digest::of(b"token"), Instant::now());
        for text in ["one", "two"] {
            logins.begin(text, token, now);
        }
        let [one, two] = ["one", "two"].map(|text| logins.find(text, now).unwrap().1);
        assert!(!one.is_over() && !two.is_over());
        logins.end("one");
        assert!(one.is_over() && !two.is_over(), "another login of the same token is not affected");
        one.ended().await;
        let late = HeldLogin { ends: now, ..two };
        assert!(late.is_over());
        late.ended().await;
    }

    #[test]
    fn login_ends_at_deadline_and_logout() {
        let (logins, token, now) = (Logins::default(), Digest::of(b"token"), Instant::now());
        logins.begin("text", token, now);
        assert_eq!(token_of(&logins, "text", now), Some(token));
        assert_eq!(token_of(&logins, "other", now), None);
        assert_eq!(token_of(&logins, "text", now + LOGIN_LASTS), None);
        logins.end("text");
        assert_eq!(token_of(&logins, "text", now), None);
    }

    #[test]
    fn login_code_works_once_before_deadline() {
        let (logins, token, now) = (Logins::default(), Digest::of(b"token"), Instant::now());
        logins.add_code("code", token, now);
        assert_eq!(logins.take_code("code", now), Some(token));
        assert_eq!(logins.take_code("code", now), None);
        logins.add_code("late", token, now);
        assert_eq!(logins.take_code("late", now + CODE_LASTS), None);
        // A code is not accepted as a login, nor a login as a code.
        logins.add_code("code", token, now);
        logins.begin("text", token, now);
        assert_eq!((token_of(&logins, "code", now), logins.take_code("text", now)), (None, None));
    }

    #[test]
    fn login_above_token_limit_replaces_oldest() {
        let (logins, now) = (Logins::default(), Instant::now());
        let (token, another) = (Digest::of(b"token"), Digest::of(b"another"));
        logins.begin("of another", another, now);
        for count in 0..=MAX_PER_TOKEN {
            logins.begin(&format!("{count}"), token, now + Duration::from_secs(count as u64));
        }
        let lasts = |text: &str| token_of(&logins, text, now).is_some();
        assert!(!lasts("0") && lasts("1") && lasts("of another"));
    }
}
