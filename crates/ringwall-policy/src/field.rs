//! Names, units and valid ranges of limits.
//!
//! A limit is a whole number in its field's own unit, so that layers compare exactly; CPU is stored
//! in thousandths of a core. Which valid value is allowed is decided by [`merge`](crate::merge).

use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::{Error, quote};
use crate::limits::{Quantity, UNLIMITED};

/// One limit. A megabyte is 2^20 bytes, as in the kernel and in Docker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    TimeoutMs,
    MemoryMb,
    CpuMillis,
    Pids,
    StdoutBytes,
    StderrBytes,
    ArtifactsBytes,
    ScratchMb,
}

impl Field {
    pub const ALL: [Self; 8] = [
        Self::TimeoutMs,
        Self::MemoryMb,
        Self::CpuMillis,
        Self::Pids,
        Self::StdoutBytes,
        Self::StderrBytes,
        Self::ArtifactsBytes,
        Self::ScratchMb,
    ];

    /// The public name, in JSON and in messages.
    pub const fn key(self) -> &'static str {
        match self {
            Self::TimeoutMs => "timeout_ms",
            Self::MemoryMb => "memory_mb",
            Self::CpuMillis => "cpu_cores",
            Self::Pids => "pids",
            Self::StdoutBytes => "max_stdout_bytes",
            Self::StderrBytes => "max_stderr_bytes",
            Self::ArtifactsBytes => "max_artifacts_bytes_total",
            Self::ScratchMb => "scratch_mb",
        }
    }

    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.key() == key)
    }

    /// The largest finite value: a year, 2^30 MB, 8192 cores, the kernel's maximum of 2^22
    /// processes, and 2^50 bytes. Up to it, a conversion to bytes or nanoseconds cannot overflow.
    pub const fn max_value(self) -> u64 {
        match self {
            Self::TimeoutMs => 365 * 24 * 60 * 60 * 1000,
            Self::MemoryMb | Self::ScratchMb => 1 << 30,
            Self::CpuMillis => 8192 * 1000,
            Self::Pids => 1 << 22,
            Self::StdoutBytes | Self::StderrBytes | Self::ArtifactsBytes => 1 << 50,
        }
    }

    /// Returns a value in the field's own unit (thousandths of a core) if it is valid.
    pub fn check(self, value: u64) -> Result<u64, Error> {
        match value {
            UNLIMITED if self == Self::TimeoutMs => Ok(value),
            UNLIMITED => Err(self.malformed("unlimited")),
            0 => Err(self.malformed("0")),
            _ if value > self.max_value() => Err(self.too_large(self.quantity(value).to_string())),
            _ => Ok(value),
        }
    }

    /// Reads a whole number in the public unit (cores).
    pub fn read_whole(self, number: u64) -> Result<u64, Error> {
        match number.checked_mul(self.scale()) {
            Some(0) => Err(self.malformed(number)),
            Some(value) if value <= self.max_value() => Ok(value),
            Some(_) | None => Err(self.too_large(number)),
        }
    }

    /// Reads a decimal number in the public unit. Only cores may have decimals, at most three; more
    /// are an error, because rounding would change the limit silently.
    pub fn read_decimal(self, number: f64) -> Result<u64, Error> {
        let scale = self.scale() as f64;
        let scaled = (number * scale).round();
        if scaled.is_finite() && scaled > self.max_value() as f64 {
            return Err(self.too_large(format!("{number:?}")));
        }
        // Division is correctly rounded, so the quotient equals `number` if `number` has at most
        // three decimals.
        let value = scaled as u64;
        if !number.is_finite() || value == 0 || value as f64 / scale != number {
            return Err(self.malformed(format!("{number:?}")));
        }
        Ok(value)
    }

    /// Reads a number from text, for a command line or an environment variable.
    pub fn read_text(self, text: &str) -> Result<u64, Error> {
        if let Ok(number) = text.parse::<u64>() {
            return self.read_whole(number);
        }
        match text.parse::<f64>() {
            Ok(number) => self.read_decimal(number),
            Err(_) => Err(self.malformed(quote(text))),
        }
    }

    /// The value with its unit, for messages.
    pub const fn quantity(self, value: u64) -> Quantity {
        Quantity { field: self, value }
    }

    /// The accepted values, in words.
    pub const fn expectation(self) -> &'static str {
        match self {
            Self::TimeoutMs => "a whole number of milliseconds, at least 1",
            Self::MemoryMb | Self::ScratchMb => "a whole number of megabytes, at least 1",
            Self::CpuMillis => "a number of cores, at least 0.001 and with at most three decimals",
            Self::Pids => "a whole number of processes, at least 1",
            Self::StdoutBytes | Self::StderrBytes | Self::ArtifactsBytes => "a whole number of bytes, at least 1",
        }
    }

    const fn scale(self) -> u64 {
        match self {
            Self::CpuMillis => 1000,
            _ => 1,
        }
    }

    pub(crate) fn malformed(self, given: impl fmt::Display) -> Error {
        Error::LimitMalformed { field: self, given: given.to_string() }
    }

    fn too_large(self, given: impl fmt::Display) -> Error {
        Error::LimitTooLarge { field: self, given: given.to_string() }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key())
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_finds_its_field() {
        for field in Field::ALL {
            assert_eq!(Field::from_key(field.key()), Some(field));
        }
        assert_eq!(Field::from_key("cpu_millis"), None);
    }

    #[test]
    fn text_is_read_exactly_or_rejected() {
        use Field::{CpuMillis, MemoryMb, Pids, TimeoutMs};
        let accepted = [
            (TimeoutMs, "1", 1),
            (TimeoutMs, "31536000000", 31_536_000_000),
            (MemoryMb, "512.0", 512),
            (CpuMillis, "1", 1000),
            (CpuMillis, "0.5", 500),
            (CpuMillis, "0.001", 1),
            (CpuMillis, "1.001", 1001),
            (CpuMillis, "0.29", 290),
            (Pids, "1e3", 1000),
        ];
        for (field, text, value) in accepted {
            assert_eq!(field.read_text(text), Ok(value), "{field} {text}");
        }
        let malformed = ["", "0", "0.0", "-1", "-0.5", "nan", "-inf", "inf", "many", "0.0005"];
        for (field, text) in Field::ALL.into_iter().flat_map(|field| malformed.map(|text| (field, text))).chain([
            (MemoryMb, "0.5"),
            (Pids, "2.5"),
            (CpuMillis, "0.1234"),
        ]) {
            let result = field.read_text(text);
            assert!(matches!(result, Err(Error::LimitMalformed { .. })), "{field} {text}: {result:?}");
        }
        for field in Field::ALL {
            for text in ["18446744073709551615", "18446744073709551616", "1e300"] {
                let result = field.read_text(text);
                assert!(matches!(result, Err(Error::LimitTooLarge { .. })), "{field} {text}: {result:?}");
            }
        }
    }

    #[test]
    fn only_timeout_may_be_unlimited() {
        for field in Field::ALL {
            assert_eq!(field.check(UNLIMITED).is_ok(), field == Field::TimeoutMs);
            assert_eq!(field.check(field.max_value()), Ok(field.max_value()));
            assert!(field.check(field.max_value() + 1).is_err());
            assert!(field.check(0).is_err());
        }
    }
}
