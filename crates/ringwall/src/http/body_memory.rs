//! Limits the memory of request bodies above 64 KiB, for all callers together and for each caller.
//!
//! Without the total limit one agent could hold an unfinished upload of 100 MB on each of its
//! connections. Without the limit per caller its uploads, unfinished for up to 60 seconds each,
//! would leave no memory for the bodies of others.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use parking_lot::Mutex;
use ringwall_service::Principal;

use crate::http::transport::caller_limits::caller_key;
use crate::http::transport::problem::Problem;

/// Bodies up to this size are always received. The connection limit bounds all of them together.
pub(super) const SMALL_BODY: usize = 64 << 10;
const MAX_LARGE_BODIES: usize = 256 << 20;
/// One caller may use a quarter of the memory, and always enough for one body of the largest size.
const CALLERS_SHARE: usize = 4;

static MEMORY: BodyMemory = BodyMemory::new();

tokio::task_local! {
    /// The caller whose request this task handles.
    static CALLER: String;
}

/// Runs `handler` with its request bodies counted for this caller.
pub(crate) async fn as_caller<T>(by: &Principal, handler: impl Future<Output = T>) -> T {
    CALLER.scope(caller_key(by), handler).await
}

#[derive(Debug)]
pub(super) struct BodyMemory(Mutex<Taken>);

#[derive(Debug)]
struct Taken {
    total: usize,
    /// Callers without a large body have no entry.
    callers: BTreeMap<String, usize>,
}

/// The memory of one body. Dropping it frees the memory.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: &'static BodyMemory,
    caller: String,
    max: usize,
    share: usize,
    reserved: usize,
}

impl BodyMemory {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Taken { total: 0, callers: BTreeMap::new() }))
    }

    pub(super) const fn reserve(&'static self, caller: String, max: usize, share: usize) -> Reservation {
        Reservation { memory: self, caller, max, share, reserved: 0 }
    }

    #[cfg(test)]
    pub(super) fn total(&self) -> usize {
        self.0.lock().total
    }
}

impl Reservation {
    /// The total limit always has room for two bodies of the largest size, also if the operator
    /// raised that size above the default total.
    pub(super) fn new(max_bytes: usize) -> Self {
        let max = MAX_LARGE_BODIES.max(max_bytes.saturating_mul(2));
        // Unset on routes without authentication, which accept small bodies only.
        let caller = CALLER.try_with(String::clone).unwrap_or_default();
        MEMORY.reserve(caller, max, max_bytes.max(max / CALLERS_SHARE))
    }

    pub(super) fn grow_to(&mut self, length: usize) -> Result<(), Problem> {
        if length <= SMALL_BODY || length <= self.reserved {
            return Ok(());
        }
        let more = length - self.reserved;
        let mut taken = self.memory.0.lock();
        let of_caller = taken.callers.get(&self.caller).copied().unwrap_or_default();
        if of_caller.saturating_add(more) > self.share {
            let message =
                format!("your request bodies together need more than {} bytes of the server's memory", self.share);
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "BODY_MEMORY", message);
            return Err(problem.with_hint("wait until one of your other uploads has been received"));
        }
        if taken.total.saturating_add(more) > self.max {
            let message =
                format!("all request bodies together need more than {} bytes of the server's memory", self.max);
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "BODY_MEMORY", message);
            return Err(problem.with_hint("try again in a moment"));
        }
        taken.total += more;
        taken.callers.insert(self.caller.clone(), of_caller + more);
        self.reserved = length;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.reserved == 0 {
            return;
        }
        let mut taken = self.memory.0.lock();
        taken.total -= self.reserved;
        if let Some(of_caller) = taken.callers.get_mut(&self.caller) {
            *of_caller -= self.reserved;
            if *of_caller == 0 {
                taken.callers.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn caller_above_its_share_leaves_memory_for_others() {
        static MEMORY: BodyMemory = BodyMemory::new();
        let reserve = |caller: &str, length: usize| {
            let mut reservation = MEMORY.reserve(caller.to_owned(), 400 * KIB, 100 * KIB);
            reservation.grow_to(length).map(|()| reservation).map_err(|problem| problem.code())
        };
        let held = reserve("a", 100 * KIB).unwrap();
        assert_eq!(reserve("a", 65 * KIB).unwrap_err(), "BODY_MEMORY");
        assert!(reserve("a", SMALL_BODY).is_ok(), "a small body is always received");
        let others = ["b", "c", "d"].map(|caller| reserve(caller, 100 * KIB).unwrap());
        assert_eq!(reserve("e", 65 * KIB).unwrap_err(), "BODY_MEMORY", "the limit of all callers");
        drop((held, others));
        assert!(reserve("a", 65 * KIB).is_ok());
        assert!(MEMORY.0.lock().callers.is_empty(), "callers without a large body are forgotten");
    }

    #[test]
    fn share_fits_one_body_of_the_largest_size() {
        let shares = [8 << 20, 100 << 20, 1 << 30].map(|max_bytes| {
            let Reservation { max, share, .. } = Reservation::new(max_bytes);
            (max >> 20, share >> 20)
        });
        assert_eq!(shares, [(256, 64), (256, 100), (2048, 1024)]);
    }
}
