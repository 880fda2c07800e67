//! `ringwall run`: runs one command in one box, without a server.
//!
//! The flags become a request and the operator's policy layer, so they can raise every limit up to what
//! the machine has. This module forwards streams and signals and prints the result.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ringwall_executor::{
    BoxControl, Captured, Early, Ending, Error, Executor, Hold, Host, Options, Outcome, Prepared, Protection, Step,
    StepTime, real_path,
};
use ringwall_policy::{
    Ceilings, Field, Grant, ImageName, Layer, LayerName, Layers, Limits, Request, Requirement, Root, Secret, Verdict,
    Workspace,
};
use rustix::process::Signal;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::streams;
use crate::message::Message;
use crate::runtime;

/// Time to write the remaining output of a killed command to a slow reader.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Stop the command after this many seconds, such as 10 or 0.5 (exit code 124)
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// Limit the memory of the whole box, in MB
    #[arg(long, value_name = "MB", allow_hyphen_values = true)]
    memory_mb: Option<String>,
    /// Limit the CPU time, in cores such as 2 or 0.5
    #[arg(long, value_name = "CORES", allow_hyphen_values = true)]
    cpus: Option<String>,
    /// Limit the number of processes and threads
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pids: Option<String>,
    /// Mount this directory writable at /workspace [default: an empty directory that is deleted afterwards]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Mount this directory read-only at the same path (repeatable)
    #[arg(long, value_name = "DIR")]
    ro: Vec<PathBuf>,
    /// Set an environment variable; the box inherits none (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<OsString>,
    /// Use an imported image as the root file system instead of the host's /usr
    #[arg(long, value_name = "NAME")]
    image: Option<ImageName>,
    /// Give the command a terminal
    #[arg(long, conflicts_with = "json")]
    tty: bool,
    /// Print a JSON object with the result and the output, instead of the output alone
    #[arg(long)]
    json: bool,
    /// Refuse to run without this protection: landlock, memory, pids, cpu, io, or a counter such as epoll_watches that
    /// `ringwall doctor` lists (repeatable)
    #[arg(long, value_name = "PROTECTION")]
    require: Vec<Requirement>,
    /// Stop at this step of the box's set-up and wait (for crash tests)
    #[arg(long, value_name = "STEP", hide = true)]
    hold_at: Option<String>,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command and prints errors as text or JSON.
pub(crate) fn run(arguments: &RunArguments, early: Result<Early, Error>, data: &Path) -> ExitCode {
    try_run(arguments, early, data).unwrap_or_else(|message| message.print_as(arguments.json))
}

fn try_run(arguments: &RunArguments, early: Result<Early, Error>, data: &Path) -> Result<ExitCode, Message> {
    let (executor, prepared) = Executor::of_one(early, data)?;
    let request = request(arguments)?;
    let layers = layers(arguments, executor.host())?;
    let grant = match ringwall_policy::decide(&request, &layers) {
        Verdict::Allow(grant) => grant,
        Verdict::Deny(denial) => return Err(denial_with_flag(denial)),
        Verdict::Ask(_) => {
            return Err(Message::new("this command needs an approval, which `ringwall run` cannot request"));
        }
    };
    let options = Options { terminal: arguments.tty.then(streams::window_size), hold_at: hold_at(arguments)? };
    let runtime = runtime::current_thread()?;
    let code = runtime.block_on(follow(arguments, executor, prepared, grant, options));
    // Dropping the runtime would wait for threads that write to a reader that does not read.
    std::mem::forget(runtime);
    code
}

/// Starts the box, forwards its streams and waits for its end and the last byte of output.
async fn follow(
    arguments: &RunArguments,
    executor: Executor,
    prepared: Prepared,
    grant: Grant,
    options: Options,
) -> Result<ExitCode, Message> {
    let limits = grant.effective().limits;
    let mut interrupts = Interrupts::listen()?;
    let mut running = tokio::select! {
        started = executor.start_prepared(prepared, grant, options) => started?,
        // The command has not started. Dropping the future removes the incomplete box.
        signal = interrupts.next() => return Ok(exit_code(128 + signal.as_raw())),
    };
    // Removes what killed processes left behind, in parallel to the command.
    executor.sweep();
    let bounds = (limits.get(Field::StdoutBytes), limits.get(Field::StderrBytes));
    let ends = running.take_streams();
    let output = if arguments.json { streams::capture_output(ends, bounds) } else { streams::forward_output(ends) };
    let control = running.control();
    let mut stopped = None;
    let outcome = tokio::select! {
        outcome = running.wait() => outcome,
        never = interrupts.forward(&*control, &mut stopped) => match never {},
    };
    let mut outcome = outcome?;
    if let Some(signal) = stopped {
        outcome.ending = Ending::Stopped(signal.as_raw());
    }
    let written = match outcome.ending {
        Ending::Exited(_) => tokio::select! {
            written = output.finish() => written,
            signal = interrupts.next() => return Ok(exit_code(128 + signal.as_raw())),
        },
        // A reader that does not read must not keep this process alive after a killed command.
        _ => tokio::time::timeout(OUTPUT_TIMEOUT, output.finish()).await.unwrap_or_else(|_| Ok(Default::default())),
    };
    let kept = written.map_err(|error| Message::new(format!("could not write the command's output: {error}")))?;
    if arguments.json {
        print_report(&outcome, &kept, &limits)?;
    } else {
        explain(&outcome, &limits);
    }
    Ok(exit_code(outcome.exit_code()))
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Prints why the box was killed, if a limit was the reason.
fn explain(outcome: &Outcome, limits: &Limits) {
    let limit = |field: Field| field.quantity(limits.get(field)).to_string();
    if outcome.out_of_memory {
        let text = format!("the box ran out of memory (limit {})", limit(Field::MemoryMb));
        Message::new(text).with_hint("allow more with --memory-mb").print();
    } else if outcome.ending == Ending::TimedOut {
        let seconds = limits.get(Field::TimeoutMs) as f64 / 1000.0;
        Message::new(format!("timed out after {seconds} s (--timeout)")).print();
    } else if outcome.ending == Ending::OverCounters {
        Message::new("the box was killed because it held too many epoll watches or unreceived descriptors")
            .with_hint(
                "use fewer, or run as root: then the box has its own user id; `ringwall doctor` explains the limits",
            )
            .print();
    }
}

/// The JSON object of `--json`.
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

fn print_report(outcome: &Outcome, kept: &[Captured; 2], limits: &Limits) -> Result<(), Message> {
    let [stdout, stderr] = kept;
    let text = |captured: &Captured| String::from_utf8_lossy(&captured.kept).into_owned();
    let (exit_code, signal) = match outcome.ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::Signalled(signal) | Ending::Stopped(signal) => (None, Some(signal)),
        Ending::TimedOut => (None, None),
        Ending::OverCounters => (None, Some(Signal::KILL.as_raw())),
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

fn request(arguments: &RunArguments) -> Result<Request, Message> {
    let workspace = match &arguments.workspace {
        None => Workspace::Private,
        Some(path) => Workspace::Directory(real_path(path)?),
    };
    Ok(Request {
        argv: arguments.command.clone(),
        env: environment(&arguments.env)?,
        cwd: None,
        root: arguments.image.clone().map_or(Root::Host, Root::Image),
        workspace,
        read_only: arguments.ro.iter().map(|path| real_path(path)).collect::<Result<_, _>>()?,
    })
}

fn environment(pairs: &[OsString]) -> Result<BTreeMap<String, Secret>, Message> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    pairs
        .iter()
        .map(|pair| {
            let bytes = pair.as_bytes();
            let split = bytes.iter().position(|byte| *byte == b'=');
            let key = split.and_then(|split| std::str::from_utf8(&bytes[..split]).ok());
            let (Some(split), Some(key)) = (split, key) else {
                return Err(Message::new("--env needs KEY=VALUE").with_hint("for an empty value write KEY="));
            };
            Ok((key.to_owned(), Secret::new(OsString::from_vec(bytes[split + 1..].to_vec()))))
        })
        .collect()
}

/// The flags are the operator's layer: they can raise the defaults up to what the machine has.
fn layers(arguments: &RunArguments, host: &Host) -> Result<Layers, Message> {
    let mut operator = Layer::new(LayerName::CommandLine);
    let flags = [
        ("--memory-mb", Field::MemoryMb, &arguments.memory_mb),
        ("--cpus", Field::CpuMillis, &arguments.cpus),
        ("--pids", Field::Pids, &arguments.pids),
    ];
    for (flag, field, text) in flags {
        if let Some(text) = text {
            let value = field.read_text(text).map_err(|error| Message::new(format!("{flag} {text}: {error}")))?;
            operator.limits.insert(field, value);
        }
    }
    if let Some(text) = &arguments.timeout {
        operator.limits.insert(Field::TimeoutMs, milliseconds(text)?);
    }
    operator.require = arguments.require.iter().copied().collect();
    Ok(machine_layers(host, operator))
}

/// The layers of a box without a server: `operator` may raise limits up to those of the machine.
pub(crate) fn machine_layers(host: &Host, operator: Layer) -> Layers {
    let ceilings = ringwall_policy::profile::machine_ceilings(host.memory_mb, host.cpus, host.pids);
    Layers {
        system: ringwall_policy::profile::RUN,
        ceilings: Ceilings { limits: ceilings, set_by: LayerName::Machine },
        operator,
        narrowing: Vec::new(),
    }
}

/// Replaces the policy's field in a denial by the flag that the user wrote.
fn denial_with_flag(denial: ringwall_policy::Denial) -> Message {
    let flag = match denial.field {
        Some(Field::TimeoutMs) => "--timeout",
        Some(Field::MemoryMb) => "--memory-mb",
        Some(Field::CpuMillis) => "--cpus",
        Some(Field::Pids) => "--pids",
        _ => return denial.into(),
    };
    let key = denial.field.map(Field::key).unwrap_or_default();
    Message::from(denial).with_subject(flag, key)
}

/// Parses seconds and rounds them up to milliseconds.
fn milliseconds(text: &str) -> Result<u64, Message> {
    let bad = || {
        Message::new(format!("--timeout {text}: not a number of seconds above zero"))
            .with_hint("write seconds such as 10 or 0.5; omit the flag for no time limit")
    };
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    let milliseconds = (seconds * 1000.0).ceil();
    if !(1.0..9e15).contains(&milliseconds) {
        return Err(bad());
    }
    Ok(milliseconds as u64)
}

fn hold_at(arguments: &RunArguments) -> Result<Option<Hold>, Message> {
    let Some(name) = &arguments.hold_at else { return Ok(None) };
    let step: Step = serde_json::from_value(serde_json::Value::String(name.clone()))
        .map_err(|_| Message::new(format!("--hold-at {name}: no such step")))?;
    Ok(Some(Hold { step, held: announce }))
}

#[expect(clippy::print_stderr, reason = "a crash test waits for this line")]
fn announce(step: Step) {
    eprintln!("ringwall: holding at {}", serde_json::json!(step).as_str().unwrap_or_default());
}

/// SIGINT, SIGTERM and SIGHUP of this process. The first is forwarded to the box, which is killed after
/// a grace period. A second one kills the box at once.
struct Interrupts {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Interrupts {
    fn listen() -> Result<Self, Message> {
        let listen =
            |kind| signal(kind).map_err(|error| Message::new(format!("could not install signal handlers: {error}")));
        Ok(Interrupts {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }

    async fn forward(&mut self, control: &dyn BoxControl, stopped: &mut Option<Signal>) -> std::convert::Infallible {
        let first = self.next().await;
        *stopped = Some(first);
        tokio::select! {
            () = control.stop(first) => {}
            _ = self.next() => control.kill(),
        }
        std::future::pending().await
    }
}
