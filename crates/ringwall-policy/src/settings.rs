//! Operator settings with a range: the limits layer, and counts such as queue length, retention and
//! quotas.
//!
//! Limits are checked against [`profile::SERVICE_CEILINGS`] when they are saved, so no limit is
//! stored for which every exec would be denied. Counts are no limits of an exec; no other layer
//! changes them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::Error;
use crate::layer::{Layer, LayerName};
use crate::merge::{Ceilings, Layers, merge};
use crate::profile;
use crate::verdict::Denial;

/// Builds the operator's layer from `sandbox.limits`, or denies values above
/// [`profile::SERVICE_CEILINGS`].
pub fn check_settings(limits: Layer) -> Result<Layer, Denial> {
    let operator = limits.with_name(LayerName::Settings);
    let ceilings = Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System };
    let layers = Layers { system: profile::EXECS, ceilings, operator, narrowing: vec![] };
    merge(&layers)?;
    Ok(layers.operator)
}

/// Defines a newtype for a setting: a whole number from `MIN` to `MAX`.
macro_rules! count {
    ($(#[$meta:meta])* $name:ident, $key:literal, $(default $default:literal,)? $(at least $min:literal,)? at most $max:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The setting's key.
            pub const KEY: &'static str = $key;
            pub const MIN: u32 = count!(@min $($min)?);
            pub const MAX: u32 = $max;

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
                let (min, max) = (Self::MIN, Self::MAX);
                Error::CountOutOfRange { key: Self::KEY, min, max, given: given.to_string() }
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        })?

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let visitor = CountVisitor { key: Self::KEY, min: Self::MIN, max: Self::MAX };
                let number = deserializer.deserialize_any(visitor)?;
                Self::new(number).map_err(de::Error::custom)
            }
        }
    };
    (@min) => { 1 };
    (@min $min:literal) => { $min };
}

count! {
    /// Execs that run at the same time.
    ConcurrentExecs, "sandbox.max_concurrent_execs", default 4, at most 16
}

count! {
    /// Execs of one user that run at the same time. The default is below that of
    /// [`ConcurrentExecs`], so that one user's long execs cannot block all others.
    ConcurrentExecsPerUser, "sandbox.max_concurrent_execs_per_user", default 3, at most 16
}

count! {
    /// Execs that may wait for a slot; further ones are refused.
    QueuedExecs, "sandbox.max_queued_execs", default 256, at most 65_536
}

count! {
    /// Days that an ended exec stays in the record, with its files. Kept forever without a value.
    ExecRetentionDays, "retention.execs_days", at most 36_500
}

count! {
    /// Days that an entry stays in the audit chain. Kept forever without a value.
    AuditRetentionDays, "retention.audit_days", at most 36_500
}

count! {
    /// MiB of an upload, and of any other request body of the files and skills API.
    UploadMaxMb, "files.upload_max_mb", default 50, at most 65_536
}

count! {
    /// Unpacked MiB of an uploaded skill archive.
    UnpackedMaxMb, "skills.unpacked_max_mb", default 512, at most 1_048_576
}

count! {
    /// Entries of an uploaded skill archive.
    SkillEntriesMax, "skills.entries_max", default 20_000, at most 1_000_000
}

count! {
    /// MiB of one workspace.
    QuotaMb, "workspace.quota_mb", default 1024, at most 1_073_741_824
}

count! {
    /// Names in one workspace: files, directories and all other entries.
    QuotaFiles, "workspace.quota_files", default 200_000, at most 100_000_000
}

count! {
    /// Hours that a session's files stay after their last use.
    SessionRetentionHours, "sessions.retention_hours", default 24, at most 876_000
}

count! {
    /// MiB of one session's files.
    SessionMaxMb, "sessions.max_mb", default 1024, at most 1_073_741_824
}

count! {
    /// Seconds until an approval expires.
    ApprovalTimeoutSeconds, "approvals.timeout_s", default 120, at most 604_800
}

count! {
    /// Boxes in the pool: session boxes and warm boxes together.
    PoolMax, "pool.max_instances", default 10, at most 1000
}

count! {
    /// Warm boxes kept ready: from the start for a plain Python run, later for each other kind that
    /// was used. 0 turns warm boxes off.
    PoolMin, "pool.min_instances", default 2, at least 0, at most 1000
}

count! {
    /// Seconds after which an unused box leaves the pool.
    PoolIdleSeconds, "pool.idle_timeout_s", default 300, at most 604_800
}

count! {
    /// Uses after which a session box is replaced.
    PoolMaxUses, "pool.max_use_count", default 100, at most 1_000_000
}

count! {
    /// Seconds that a request waits for a box.
    PoolAcquireSeconds, "pool.acquire_timeout_s", default 30, at most 3600
}

count! {
    /// Browsers that run at the same time.
    BrowserMax, "browser.max_instances", default 10, at most 100
}

count! {
    /// Seconds after which an unused browser is closed.
    BrowserIdleSeconds, "browser.idle_timeout_s", default 300, at most 604_800
}

count! {
    /// MiB of memory of an external browser's box.
    BrowserMemoryMb, "browser.memory_mb", default 1024, at most 4096
}

count! {
    /// Processes and threads of an external browser's box.
    BrowserPids, "browser.pids", default 300, at most 512
}

struct CountVisitor {
    key: &'static str,
    min: u32,
    max: u32,
}

impl de::Visitor<'_> for CountVisitor {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} as a whole number from {} to {}", self.key, self.min, self.max)
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
    fn settings_within_ceilings_become_operator_layer() -> Result<(), Box<dyn std::error::Error>> {
        let layer = check_settings(serde_json::from_str(r#"{"timeout_ms":300000,"cpu_cores":4}"#)?)?;
        assert_eq!(layer.name, LayerName::Settings);
        assert_eq!(layer.limits, [(Field::TimeoutMs, 300_000), (Field::CpuMillis, 4000)].into());
        for field in Field::ALL {
            let ceiling = profile::SERVICE_CEILINGS.get(field);
            let asking = |value| Layer { limits: [(field, value)].into(), ..Layer::new(LayerName::Request) };
            assert!(check_settings(asking(ceiling)).is_ok(), "{field}");
            let denial = check_settings(asking(ceiling + 1)).expect_err("more than the ceiling");
            assert_eq!((denial.code, denial.field), (DenialCode::LimitExceeded, Some(field)));
            assert_eq!(denial.requested_by, Some(LayerName::Settings));
        }
        let unlimited = serde_json::from_str(r#"{"timeout_ms":null}"#)?;
        assert!(check_settings(unlimited).is_err());
        Ok(())
    }

    #[test]
    fn count_outside_range_is_rejected() {
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
