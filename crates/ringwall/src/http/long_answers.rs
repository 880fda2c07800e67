//! How many answers one caller may have open that last as long as the caller likes: events that are followed, and files
//! that are read slowly. Each holds a connection's place, and no caller may hold all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use service::{Holder, Principal};

use super::problem::Problem;

/// Of all places a caller gets a part, and never more than this.
const MOST: usize = 256;
const PART: usize = 4;
const MOST_SOCKETS: usize = 2048;
const PART_OF_SOCKETS: usize = 2;

#[derive(Debug)]
pub(crate) struct LongAnswers {
    most: usize,
    open: Mutex<HashMap<String, usize>>,
}

/// One of them, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct LongAnswer {
    all: Arc<LongAnswers>,
    caller: String,
}

impl LongAnswers {
    /// For a server with so many places for connections.
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { most: (places / PART).clamp(1, MOST), open: Mutex::default() })
    }

    /// Sockets are followed for as long as a page is open, say next to nothing, and one person may have many.
    pub(crate) fn of_sockets(places: usize) -> Arc<Self> {
        Arc::new(Self { most: (places / PART_OF_SOCKETS).clamp(1, MOST_SOCKETS), open: Mutex::default() })
    }

    pub(crate) fn begin(self: &Arc<Self>, by: &Principal) -> Result<LongAnswer, Problem> {
        // A user's agents and tokens are one caller.
        let caller = match by.holder() {
            Holder::User(user) | Holder::Agent(user, _) => format!("user {user}"),
            Holder::Owner | Holder::Operator => format!("token {}", by.caller()),
        };
        self.count(caller)
    }

    fn count(self: &Arc<Self>, caller: String) -> Result<LongAnswer, Problem> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(caller.clone()).or_default();
        if *count >= self.most {
            let message = format!("{count} streams and downloads of yours are open, and more may not be");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_STREAMS", message)
                .with_hint("close some; GET …/stdout with an offset reads on without a stream"));
        }
        *count += 1;
        Ok(LongAnswer { all: self.clone(), caller })
    }
}

impl Drop for LongAnswer {
    fn drop(&mut self) {
        let mut open = self.all.open.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn one_caller_does_not_have_all() {
        let answers = LongAnswers::new(8);
        let count = |caller: &str| answers.count(caller.to_owned());
        let (one, _two) = (count("a").unwrap(), count("a").unwrap());
        assert_eq!(count("a").unwrap_err().code(), "TOO_MANY_STREAMS");
        let other = count("b").unwrap();
        drop(one);
        assert!(count("a").is_ok());
        drop(other);
        assert_eq!(answers.open.lock().unwrap().len(), 1, "those who have none are forgotten");
    }

    #[test]
    fn few_places_are_shared_too() {
        assert_eq!([1, 3, 16, 100_000].map(|places| LongAnswers::new(places).most), [1, 1, 4, 256]);
    }
}
