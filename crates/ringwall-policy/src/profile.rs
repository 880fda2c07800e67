//! The system's own numbers: what an exec gets when nobody says anything, and what nobody may exceed.
//!
//! Constants only, one per door, so that a reader finds all defaults on one page. Nothing here looks at the machine;
//! its size is handed in.

use crate::field::Field;
use crate::limits::{Limits, UNLIMITED};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Defaults for execs that a server runs.
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

/// Defaults for what is run on an agent's files: all the time and all the output that there may be.
pub const FILES: Limits = Limits { timeout_ms: 300_000, stdout_bytes: 10 * MIB, stderr_bytes: 10 * MIB, ..EXECS };

/// Defaults for what nobody waits for in a session's box: it lasts until it ends, is ended, or its box is.
pub const PROCESSES: Limits = Limits { timeout_ms: UNLIMITED, ..FILES };

/// Defaults for a local `ringwall run`: somebody sits before it and can interrupt it, so it has no timeout. The bounds
/// on output concern output that is captured; what is passed through is not counted.
pub const RUN: Limits = Limits { timeout_ms: UNLIMITED, ..EXECS };

/// What an operator of a server may raise limits to. Scratch space is memory, so it ends where memory ends.
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

/// The same for what nobody waits for.
pub const PROCESS_CEILINGS: Limits = Limits { timeout_ms: UNLIMITED, ..SERVICE_CEILINGS };

/// What a local caller may raise limits to: the machine they sit at. Running without a timeout stays allowed; the
/// largest finite one is [`Field::largest`].
pub fn machine_ceilings(memory_mb: u64, cpus: u64, pids: u64) -> Limits {
    // A machine that reports nothing, or nonsense, still gets ceilings that are valid limits.
    let sane = |field: Field, value: u64| value.clamp(1, field.largest());
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
    fn every_profile_is_made_of_valid_limits() {
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
    fn a_machine_is_its_own_ceiling() {
        let ceilings = machine_ceilings(8000, 2, 30_000);
        assert_eq!(ceilings.memory_mb, 8000);
        assert_eq!(ceilings.scratch_mb, 8000);
        assert_eq!(ceilings.cpu_millis, 2000);
        assert_eq!(ceilings.pids, 30_000);
        assert_eq!(ceilings.timeout_ms, UNLIMITED);
        assert_eq!(ceilings.stdout_bytes, 1 << 30);
    }
}
