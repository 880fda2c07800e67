//! The wall clock in milliseconds, as the record stores it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_record::Timestamp;

/// The current time of the system clock.
pub fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

/// Times before 1970 become 0.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_milliseconds(milliseconds(since).try_into().unwrap_or(i64::MAX))
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
