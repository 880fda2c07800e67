//! The JSON object that `ringwall run --json` prints.

use std::io::Write;

use ringwall_executor::{Captured, Ending, Outcome, Protection, StepTime};
use ringwall_policy::Limits;
use serde::Serialize;

use crate::cli::message::Message;

const SIGKILL: i32 = 9;

#[derive(Serialize)]
struct RunReport<'a> {
    /// The command's exit code; `null` if it was killed.
    exit_code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    oom_killed: bool,
    duration_ms: u64,
    usage: UsageReport,
    stdout: String,
    stderr: String,
    stdout_bytes: u64,
    stderr_bytes: u64,
    stdout_truncated: bool,
    stderr_truncated: bool,
    protections: &'a [Protection],
    limits: &'a Limits,
    /// The duration of each step of the box's set-up. Steps of the executor and of PID 1 overlap.
    setup: &'a [StepTime],
}

#[derive(Serialize)]
struct UsageReport {
    /// `null` if it is not known, for example after PID 1 of a box without a cgroup was killed.
    cpu_ms: Option<u64>,
    peak_memory_bytes: Option<u64>,
}

pub(crate) fn print(outcome: &Outcome, kept: &[Captured; 2], limits: &Limits) -> Result<(), Message> {
    let [stdout, stderr] = kept;
    let text = |captured: &Captured| String::from_utf8_lossy(&captured.kept).into_owned();
    let (exit_code, signal) = match outcome.ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::Signalled(signal) | Ending::Stopped(signal) => (None, Some(signal)),
        Ending::TimedOut => (None, None),
        Ending::OverCounters => (None, Some(SIGKILL)),
    };
    let report = RunReport {
        exit_code,
        signal,
        timed_out: outcome.ending == Ending::TimedOut,
        oom_killed: outcome.out_of_memory,
        duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
        usage: UsageReport {
            cpu_ms: outcome.usage.cpu.map(|cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX)),
            peak_memory_bytes: outcome.usage.peak_memory_bytes,
        },
        stdout: text(stdout),
        stderr: text(stderr),
        stdout_bytes: stdout.total_bytes,
        stderr_bytes: stderr.total_bytes,
        stdout_truncated: stdout.truncated(),
        stderr_truncated: stderr.truncated(),
        protections: &outcome.protections,
        limits,
        setup: &outcome.steps,
    };
    let json = serde_json::to_string(&report).map_err(std::io::Error::from);
    json.and_then(|json| writeln!(std::io::stdout(), "{json}"))
        .map_err(|error| Message::new(format!("could not write the report: {error}")))
}
