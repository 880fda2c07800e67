//! Built-in default limits and ceilings, one constant per use.
//!
//! The size of the machine is an argument of [`machine_ceilings`].

use crate::field::Field;
use crate::limits::{Limits, UNLIMITED};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Defaults for execs of a server.
pub const EXECS: Limits = Limits {
    timeout_ms: 60_000,
    memory_mb: 1024,
    cpu_millis: 1000,
    pids: 256,
    stdout_bytes: MIB,
    stderr_bytes: MIB,
    artifacts_bytes: 50 * MIB,
    scratch_mb: 256,
};

/// Defaults for commands on an agent's files, in sessions and in browsers: timeout and output at
/// [`SERVICE_CEILINGS`].
pub const FILES: Limits = Limits { timeout_ms: 300_000, stdout_bytes: 10 * MIB, stderr_bytes: 10 * MIB, ..EXECS };

/// Defaults for background code in a session box. It has no timeout and ends with its box.
pub const PROCESSES: Limits = Limits { timeout_ms: UNLIMITED, ..FILES };

/// Defaults for a local `ringwall run`: no timeout, because the user can interrupt it. The output
/// limits apply to captured output only; bytes that are passed through are not counted.
pub const RUN: Limits = Limits { timeout_ms: UNLIMITED, ..EXECS };

/// Ceilings of the operator's settings. Scratch space is memory, so both have the same ceiling.
pub const SERVICE_CEILINGS: Limits = Limits {
    timeout_ms: 300_000,
    memory_mb: 4096,
    cpu_millis: 4000,
    pids: 512,
    stdout_bytes: 10 * MIB,
    stderr_bytes: 10 * MIB,
    artifacts_bytes: 200 * MIB,
    scratch_mb: 4096,
};

/// [`SERVICE_CEILINGS`] for background code, without a ceiling on the timeout.
pub const PROCESS_CEILINGS: Limits = Limits { timeout_ms: UNLIMITED, ..SERVICE_CEILINGS };

/// Ceilings of a local `ringwall run`: the size of the machine. The timeout may be unlimited; the
/// largest finite one is [`Field::max_value`].
pub fn machine_ceilings(memory_mb: u64, cpus: u64, pids: u64) -> Limits {
    // A machine that reports 0 or an impossible value still gets valid ceilings.
    let sane = |field: Field, value: u64| value.clamp(1, field.max_value());
    let memory_mb = sane(Field::MemoryMb, memory_mb);
    Limits {
        timeout_ms: UNLIMITED,
        memory_mb,
        cpu_millis: sane(Field::CpuMillis, cpus.saturating_mul(1000)),
        pids: sane(Field::Pids, pids),
        stdout_bytes: GIB,
        stderr_bytes: GIB,
        artifacts_bytes: GIB,
        scratch_mb: memory_mb,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_values_are_valid_limits() {
        let profiles = [
            EXECS,
            PROCESSES,
            RUN,
            SERVICE_CEILINGS,
            PROCESS_CEILINGS,
            machine_ceilings(0, 0, 0),
            machine_ceilings(u64::MAX, u64::MAX, u64::MAX),
        ];
        for (profile, field) in profiles.into_iter().flat_map(|profile| Field::ALL.map(|field| (profile, field))) {
            let value = profile.get(field);
            assert_eq!(field.check(value), Ok(value), "{profile:?}");
        }
    }

    #[test]
    fn defaults_lie_within_the_service_ceilings() {
        for field in Field::ALL {
            assert!(EXECS.get(field) <= SERVICE_CEILINGS.get(field), "{field}");
        }
    }

    #[test]
    fn machine_size_becomes_ceilings() {
        let ceilings = machine_ceilings(8000, 2, 30_000);
        assert_eq!(ceilings.memory_mb, 8000);
        assert_eq!(ceilings.scratch_mb, 8000);
        assert_eq!(ceilings.cpu_millis, 2000);
        assert_eq!(ceilings.pids, 30_000);
        assert_eq!(ceilings.timeout_ms, UNLIMITED);
        assert_eq!(ceilings.stdout_bytes, 1 << 30);
    }
}
