//! One value for each limit, and how a value is displayed and serialised.

use std::convert::Infallible;
use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::field::Field;

/// No limit; `null` in JSON. Only [`Field::TimeoutMs`] may have it. It is the largest number, so
/// taking the minimum of two limits needs no special case.
pub const UNLIMITED: u64 = u64::MAX;

/// A value with its field. `Display` adds the unit (`0.5 cores`); JSON is the number (`0.5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    pub(crate) field: Field,
    pub(crate) value: u64,
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.field {
            _ if value == UNLIMITED => write!(formatter, "no limit"),
            Field::TimeoutMs => write!(formatter, "{value} ms"),
            Field::MemoryMb | Field::ScratchMb => write!(formatter, "{value} MB"),
            Field::CpuMillis if value == 1000 => write!(formatter, "1 core"),
            Field::CpuMillis => write!(formatter, "{} cores", value as f64 / 1000.0),
            Field::Pids if value == 1 => write!(formatter, "1 process"),
            Field::Pids => write!(formatter, "{value} processes"),
            Field::StdoutBytes | Field::StderrBytes | Field::ArtifactsBytes => {
                write!(formatter, "{value} byte{}", if value == 1 { "" } else { "s" })
            }
        }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.field, self.value) {
            (_, UNLIMITED) => serializer.serialize_none(),
            (Field::CpuMillis, millis) if millis % 1000 == 0 => serializer.serialize_u64(millis / 1000),
            (Field::CpuMillis, millis) => serializer.serialize_f64(millis as f64 / 1000.0),
            (_, value) => serializer.serialize_u64(value),
        }
    }
}

/// A value for every field. Named members instead of a map, so that a missing one does not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub timeout_ms: u64,
    pub memory_mb: u64,
    pub cpu_millis: u64,
    pub pids: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub artifacts_bytes: u64,
    pub scratch_mb: u64,
}

impl Limits {
    pub fn from_fn(mut value: impl FnMut(Field) -> u64) -> Self {
        let Ok(limits) = Self::try_from_fn(|field| Ok::<_, Infallible>(value(field)));
        limits
    }

    /// Calls `value` for each field in the order of [`Field::ALL`] and stops at the first error.
    pub fn try_from_fn<E>(mut value: impl FnMut(Field) -> Result<u64, E>) -> Result<Self, E> {
        Ok(Self {
            timeout_ms: value(Field::TimeoutMs)?,
            memory_mb: value(Field::MemoryMb)?,
            cpu_millis: value(Field::CpuMillis)?,
            pids: value(Field::Pids)?,
            stdout_bytes: value(Field::StdoutBytes)?,
            stderr_bytes: value(Field::StderrBytes)?,
            artifacts_bytes: value(Field::ArtifactsBytes)?,
            scratch_mb: value(Field::ScratchMb)?,
        })
    }

    pub const fn get(&self, field: Field) -> u64 {
        match field {
            Field::TimeoutMs => self.timeout_ms,
            Field::MemoryMb => self.memory_mb,
            Field::CpuMillis => self.cpu_millis,
            Field::Pids => self.pids,
            Field::StdoutBytes => self.stdout_bytes,
            Field::StderrBytes => self.stderr_bytes,
            Field::ArtifactsBytes => self.artifacts_bytes,
            Field::ScratchMb => self.scratch_mb,
        }
    }
}

impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Field::ALL.len()))?;
        for field in Field::ALL {
            map.serialize_entry(&field, &field.quantity(self.get(field)))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_stored_in_its_own_member() {
        let limits = Limits::from_fn(|field| field as u64 + 1);
        for field in Field::ALL {
            assert_eq!(limits.get(field), field as u64 + 1);
        }
    }

    #[test]
    fn quantity_displays_with_unit() {
        let table = [
            (Field::TimeoutMs, 60_000, "60000 ms"),
            (Field::TimeoutMs, UNLIMITED, "no limit"),
            (Field::MemoryMb, 1024, "1024 MB"),
            (Field::CpuMillis, 500, "0.5 cores"),
            (Field::CpuMillis, 1000, "1 core"),
            (Field::CpuMillis, 2000, "2 cores"),
            (Field::Pids, 1, "1 process"),
            (Field::Pids, 256, "256 processes"),
            (Field::StdoutBytes, 1, "1 byte"),
            (Field::ArtifactsBytes, 10, "10 bytes"),
        ];
        for (field, value, expected) in table {
            assert_eq!(field.quantity(value).to_string(), expected);
        }
    }

    #[test]
    fn limits_serialise_with_public_names_and_units() -> Result<(), serde_json::Error> {
        let limits = Limits {
            timeout_ms: UNLIMITED,
            memory_mb: 1024,
            cpu_millis: 500,
            pids: 256,
            stdout_bytes: 1,
            stderr_bytes: 2,
            artifacts_bytes: 3,
            scratch_mb: 4,
        };
        assert_eq!(
            serde_json::to_string(&limits)?,
            "{\"timeout_ms\":null,\"memory_mb\":1024,\"cpu_cores\":0.5,\"pids\":256,\"max_stdout_bytes\":1,\
             \"max_stderr_bytes\":2,\"max_artifacts_bytes_total\":3,\"scratch_mb\":4}"
        );
        assert_eq!(serde_json::to_string(&Field::CpuMillis.quantity(2000))?, "2");
        Ok(())
    }
}
