//! What an operator's settings may say: limits of execs, how many run or wait at once, how long they are kept, and how
//! much an upload and a workspace may hold.
//!
//! Limits form the operator's layer and are held to the ceilings of a server when they are *saved*, so that a document
//! which no exec could run under is never stored. Counts are not limits of one exec, and no later layer touches them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::Error;
use crate::layer::{Layer, LayerName};
use crate::merge::{Ceilings, Layers, merge};
use crate::profile;
use crate::verdict::Denial;

/// Makes the operator's layer of `sandbox.limits`, if it lies within [`profile::SERVICE_CEILINGS`].
pub fn check_settings(limits: Layer) -> Result<Layer, Denial> {
    let operator = limits.named(LayerName::Settings);
    let ceilings = Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System };
    let layers = Layers { system: profile::EXECS, ceilings, operator, narrowing: vec![] };
    merge(&layers)?;
    Ok(layers.operator)
}

/// A whole number from `MIN` to `MAX`, read from a setting.
macro_rules! count {
    ($(#[$meta:meta])* $name:ident, $key:literal, $(default $default:literal,)? $(at least $smallest:literal,)? at most $largest:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The setting's key.
            pub const KEY: &'static str = $key;
            pub const MIN: u32 = count!(@smallest $($smallest)?);
            pub const MAX: u32 = $largest;

            pub fn new(number: u64) -> Result<Self, Error> {
                match u32::try_from(number) {
                    Ok(count @ Self::MIN..=Self::MAX) => Ok(Self(count)),
                    Ok(_) | Err(_) => Err(Self::out_of_range(number)),
                }
            }

            pub const fn get(self) -> u32 {
                self.0
            }

            fn out_of_range(given: impl fmt::Display) -> Error {
                let (smallest, largest) = (Self::MIN, Self::MAX);
                Error::CountOutOfRange { key: Self::KEY, smallest, largest, given: given.to_string() }
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        })?

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let visitor = CountVisitor { key: Self::KEY, smallest: Self::MIN, largest: Self::MAX };
                let number = deserializer.deserialize_any(visitor)?;
                Self::new(number).map_err(de::Error::custom)
            }
        }
    };
    (@smallest) => { 1 };
    (@smallest $smallest:literal) => { $smallest };
}

count! {
    /// How many execs run at once.
    ConcurrentExecs, "sandbox.max_concurrent_execs", default 4, at most 16
}

count! {
    /// How many of one user's execs run at once. Fewer than run at all unless said, so that no user alone can keep all
    /// others waiting for as long as an exec may run.
    ConcurrentExecsPerUser, "sandbox.max_concurrent_execs_per_user", default 3, at most 16
}

count! {
    /// How many execs wait; one more is refused.
    QueuedExecs, "sandbox.max_queued_execs", default 256, at most 65_536
}

count! {
    /// How many days an exec stays on record, with its files, after it has ended. For ever unless said.
    ExecsKeptDays, "retention.execs_days", at most 36_500
}

count! {
    /// How many days an entry stays in the audit chain. For ever unless said.
    AuditKeptDays, "retention.audit_days", at most 36_500
}

count! {
    /// How many MiB an upload, or any other body of the files' and skills' API, has at most.
    UploadMaxMb, "files.upload_max_mb", default 50, at most 65_536
}

count! {
    /// How many MiB an uploaded archive of skills unpacks to at most.
    UnpackedMaxMb, "skills.unpacked_max_mb", default 512, at most 1_048_576
}

count! {
    /// How many entries an uploaded archive of skills has at most.
    SkillEntriesMax, "skills.entries_max", default 20_000, at most 1_000_000
}

count! {
    /// How many MiB a workspace takes at most.
    QuotaMb, "workspace.quota_mb", default 1024, at most 1_073_741_824
}

count! {
    /// How many names a workspace has at most: files, directories and anything else.
    QuotaFiles, "workspace.quota_files", default 200_000, at most 100_000_000
}

count! {
    /// How many hours a session's files stay after they were last used.
    SessionsKeptHours, "sessions.retention_hours", default 24, at most 876_000
}

count! {
    /// How many MiB a session's files take at most.
    SessionMaxMb, "sessions.max_mb", default 1024, at most 1_073_741_824
}

count! {
    /// How many seconds a person has to answer.
    ApprovalSeconds, "approvals.timeout_s", default 120, at most 604_800
}

count! {
    /// How many boxes are kept at most, of whatever sort.
    PoolMax, "pool.max_instances", default 10, at most 1000
}

count! {
    /// How many boxes wait at least, made ahead: for an ordinary run of Python from the start, and of each sort that is asked
    /// for. Where it is 0, none is ever made ahead.
    PoolMin, "pool.min_instances", default 2, at least 0, at most 1000
}

count! {
    /// How many seconds a kept box stays that nobody uses.
    PoolIdleSeconds, "pool.idle_timeout_s", default 300, at most 604_800
}

count! {
    /// After how many uses a session's box is replaced.
    PoolUses, "pool.max_use_count", default 100, at most 1_000_000
}

count! {
    /// How many seconds somebody waits for a box.
    PoolAcquireSeconds, "pool.acquire_timeout_s", default 30, at most 3600
}

count! {
    /// How many browsers there are at once.
    BrowserMax, "browser.max_instances", default 10, at most 100
}

count! {
    /// How many seconds a browser stays that nobody uses.
    BrowserIdleSeconds, "browser.idle_timeout_s", default 300, at most 604_800
}

count! {
    /// How many MiB of memory the box of an external browser has.
    BrowserMemoryMb, "browser.memory_mb", default 1024, at most 4096
}

count! {
    /// How many processes and threads the box of an external browser has.
    BrowserPids, "browser.pids", default 300, at most 512
}

struct CountVisitor {
    key: &'static str,
    smallest: u32,
    largest: u32,
}

impl de::Visitor<'_> for CountVisitor {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} as a whole number from {} to {}", self.key, self.smallest, self.largest)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::verdict::DenialCode;

    #[test]
    fn settings_become_the_operators_layer_up_to_the_ceilings() -> Result<(), Box<dyn std::error::Error>> {
        let layer = check_settings(serde_json::from_str(r#"{"timeout_ms":300000,"cpu_cores":4}"#)?)?;
        assert_eq!(layer.name, LayerName::Settings);
        assert_eq!(layer.limits, [(Field::TimeoutMs, 300_000), (Field::CpuMillis, 4000)].into());
        for field in Field::ALL {
            let ceiling = profile::SERVICE_CEILINGS.get(field);
            let asking = |value| Layer { limits: [(field, value)].into(), ..Layer::new(LayerName::Request) };
            assert!(check_settings(asking(ceiling)).is_ok(), "{field}");
            let denial = check_settings(asking(ceiling + 1)).expect_err("more than the ceiling");
            assert_eq!((denial.code, denial.field), (DenialCode::LimitExceeded, Some(field)));
            assert_eq!(denial.asked_by, Some(LayerName::Settings));
        }
        let unlimited = serde_json::from_str(r#"{"timeout_ms":null}"#)?;
        assert!(check_settings(unlimited).is_err());
        Ok(())
    }

    #[test]
    fn counts_have_defaults_and_ends() {
        assert_eq!(ConcurrentExecs::default().get(), 4);
        assert_eq!(QueuedExecs::default().get(), 256);
        assert_eq!(ConcurrentExecsPerUser::default().get(), 3);
        for good in [1, 4, 16] {
            let read: Result<ConcurrentExecs, _> = serde_json::from_str(&good.to_string());
            assert_eq!(read.map(ConcurrentExecs::get).ok(), Some(good));
        }
        for bad in ["0", "17", "-1", "2.5", "4294967300", "18446744073709551615", "\"4\"", "null", "true"] {
            let error = serde_json::from_str::<ConcurrentExecs>(bad).expect_err(bad).to_string();
            assert!(error.contains("sandbox.max_concurrent_execs") && error.contains("1 to 16"), "{error}");
        }
        assert_eq!(
            QueuedExecs::new(0).expect_err("none").to_string(),
            "sandbox.max_queued_execs must be a whole number from 1 to 65536, not 0"
        );
        assert_eq!(PoolMin::new(0).map(PoolMin::get).ok(), Some(0));
        let error = serde_json::from_str::<PoolMin>("-1").expect_err("fewer than none").to_string();
        assert!(error.contains("pool.min_instances") && error.contains("0 to 1000"), "{error}");
    }
}
