//! Tickets: each opens one WebSocket, for clients that cannot send an `Authorization` header.
//!
//! A ticket is part of a URL, and proxies log URLs; so it is valid once and for 30 seconds. It has
//! the rights of the token or login that requested it, and is invalid after that one has ended.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_record::{Digest, Timestamp};
use tokio::time::Instant;

use crate::auth::logins::HeldLogin;
use crate::auth::principal::Principal;
use crate::error::Error;

pub(crate) const LASTS: Duration = Duration::from_secs(30);
/// Maximum number of unused tickets.
const MAX_COUNT: usize = 10_000;
/// Maximum number of unused tickets per token.
const MAX_PER_USER: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<HashMap<Digest, Ticket>>);

#[derive(Debug)]
struct Ticket {
    of: Principal,
    /// The login that requested the ticket, if it was a login.
    login: Option<HeldLogin>,
    until: Instant,
}

/// A new ticket. Its text is not stored, only the hash.
#[derive(Debug, Clone)]
pub struct NewTicket {
    pub text: String,
    pub expires_at: Timestamp,
}

impl Tickets {
    pub(crate) fn issue(&self, of: &Principal, login: Option<HeldLogin>, text: &str) -> Result<(), Error> {
        let mut tickets = self.0.lock();
        let at = Instant::now();
        tickets.retain(|_, ticket| at < ticket.until);
        let own = tickets.values().filter(|ticket| ticket.of.caller() == of.caller()).count();
        if tickets.len() >= MAX_COUNT || own >= MAX_PER_USER {
            return Err(Error::TooManyTickets);
        }
        tickets.insert(Digest::of(text.as_bytes()), Ticket { of: of.clone(), login, until: at + LASTS });
        Ok(())
    }

    /// Consumes the ticket, also if it has expired.
    pub(crate) fn redeem(&self, text: &str) -> Option<(Principal, Option<HeldLogin>)> {
        let mut tickets = self.0.lock();
        let ticket = tickets.remove(&Digest::of(text.as_bytes()))?;
        let is_over = ticket.login.as_ref().is_some_and(HeldLogin::is_over);
        (Instant::now() < ticket.until && !is_over).then_some((ticket.of, ticket.login))
    }
}

#[cfg(test)]
mod tests {
    use ringwall_record::Holder;

    use super::*;

    fn principal() -> Principal {
        Principal::new("t_0123456789abcdef", Holder::Operator)
    }

    #[tokio::test(start_paused = true)]
    async fn ticket_is_valid_once_before_expiry() {
        let tickets = Tickets::default();
        tickets.issue(&principal(), None, "one").unwrap();
        tickets.issue(&principal(), None, "two").unwrap();
        let redeem = |text: &str| tickets.redeem(text).map(|(of, _)| of);
        assert_eq!(redeem("three"), None);
        assert_eq!(redeem("one"), Some(principal()));
        assert_eq!(redeem("one"), None, "used");
        tokio::time::advance(LASTS).await;
        assert_eq!(redeem("two"), None, "too late");
    }

    #[tokio::test(start_paused = true)]
    async fn tickets_above_user_limit_are_refused() {
        let tickets = Tickets::default();
        for number in 0..MAX_PER_USER {
            tickets.issue(&principal(), None, &number.to_string()).unwrap();
        }
        assert!(matches!(tickets.issue(&principal(), None, "more"), Err(Error::TooManyTickets)));
        tokio::time::advance(LASTS).await;
        tickets.issue(&principal(), None, "more").unwrap();
    }
}
