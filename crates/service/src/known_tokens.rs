//! Tokens that were shown a moment ago, so that not every request has to ask the record for one.
//!
//! A token is believed for half a second from before it was read. What this server revokes is forgotten before anybody is
//! told that it is revoked; what another process revokes is noticed when the half second is over. Only what was found is
//! kept, so that a new token opens at once, and whether one has expired is asked every time it is shown.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use record::{Digest, Token};

const BELIEVED: Duration = Duration::from_millis(500);
/// More than that many holders at once read the record instead.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct KnownTokens {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    tokens: HashMap<Digest, (Instant, Token)>,
    /// How often everything was forgotten.
    forgotten: u64,
}

/// What is known of a token that was shown.
#[derive(Debug)]
pub(crate) enum Known {
    Token(Token),
    Unknown(Reading),
}

/// When somebody set out to read a token. What was forgotten meanwhile is not kept: it may have been read before it was
/// revoked.
#[derive(Debug)]
pub(crate) struct Reading {
    begun: Instant,
    forgotten: u64,
}

impl KnownTokens {
    pub(crate) fn find(&self, hash: &Digest, at: Instant) -> Known {
        let held = self.lock();
        match held.tokens.get(hash) {
            Some((read, token)) if is_believed(*read, at) => Known::Token(token.clone()),
            Some(_) | None => Known::Unknown(Reading { begun: at, forgotten: held.forgotten }),
        }
    }

    pub(crate) fn keep(&self, hash: Digest, token: Token, reading: Reading) {
        let mut held = self.lock();
        if held.forgotten != reading.forgotten {
            return;
        }
        if held.tokens.len() >= MOST {
            held.tokens.retain(|_, (read, _)| is_believed(*read, reading.begun));
        }
        if held.tokens.len() < MOST {
            held.tokens.insert(hash, (reading.begun, token));
        }
    }

    pub(crate) fn forget(&self) {
        let mut held = self.lock();
        held.tokens.clear();
        held.forgotten += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_believed(read: Instant, at: Instant) -> bool {
    at.saturating_duration_since(read) < BELIEVED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> Digest {
        Digest::of(number.to_string().as_bytes())
    }

    fn token() -> Token {
        Token {
            id: "t_0123456789abcdef".parse().unwrap(),
            holder: record::Holder::Owner,
            label: None,
            created_at: record::Timestamp::from_milliseconds(0),
            created_by: "test".to_owned(),
            expires_at: None,
            revoked_at: None,
        }
    }

    fn read(known: &KnownTokens, number: usize, at: Instant) -> Reading {
        match known.find(&hash(number), at) {
            Known::Unknown(reading) => reading,
            Known::Token(_) => panic!("token {number} is believed"),
        }
    }

    fn is_known(known: &KnownTokens, number: usize, at: Instant) -> bool {
        matches!(known.find(&hash(number), at), Known::Token(_))
    }

    #[test]
    fn a_token_is_believed_for_a_while_since_before_it_was_read() {
        let (known, begun) = (KnownTokens::default(), Instant::now());
        let reading = read(&known, 1, begun);
        known.keep(hash(1), token(), reading);
        assert!(is_known(&known, 1, begun + BELIEVED - Duration::from_nanos(1)));
        assert!(!is_known(&known, 1, begun + BELIEVED));
        assert!(!is_known(&known, 2, begun));
    }

    #[test]
    fn what_was_read_before_it_was_forgotten_is_not_kept() {
        let (known, begun) = (KnownTokens::default(), Instant::now());
        let early = read(&known, 1, begun);
        let reading = read(&known, 2, begun);
        known.keep(hash(2), token(), reading);
        known.forget();
        known.keep(hash(1), token(), early);
        assert!(!is_known(&known, 1, begun) && !is_known(&known, 2, begun));
        let late = read(&known, 1, begun);
        known.keep(hash(1), token(), late);
        assert!(is_known(&known, 1, begun));
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let (known, begun) = (KnownTokens::default(), Instant::now());
        for number in 0..=MOST {
            let reading = read(&known, number, begun);
            known.keep(hash(number), token(), reading);
        }
        assert!(is_known(&known, 0, begun) && !is_known(&known, MOST, begun));
        let later = begun + BELIEVED;
        let reading = read(&known, MOST, later);
        known.keep(hash(MOST), token(), reading);
        assert!(is_known(&known, MOST, later));
        assert_eq!(known.lock().tokens.len(), 1);
    }
}
