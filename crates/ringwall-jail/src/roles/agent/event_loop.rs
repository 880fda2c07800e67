//! The agent's event loop: one thread, one poll. It ends when the server closes its standard input.
//!
//! Each round handles requests first, then ended processes, then streams. Outgoing frames are
//! buffered; above a limit no output is read, so a slow server slows the processes instead of
//! filling memory. The agent is not dumpable, so no process of the box can inspect it. Killing it
//! ends the box.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal};
use rustix::stdio::{stdin, stdout};
use rustix::time::Timespec;

use super::frame::{
    CHUNK, Enabled, FrameError, FrameReader, FromAgent, MAX_TO_AGENT, ProcessId, SignalTarget, ToAgent, append, read,
};
use super::isolation::ProcessIsolation;
use super::process::{OnExit, SessionProcess};
use super::signal_session::signal_session;
use crate::protocol::report::Ending;
use crate::{roles::shim, sys};

/// Above this number of unsent bytes, no output stream is read.
const MAX_UNSENT: usize = 256 * 1024;
/// Signals or ended processes handled per round, so that a flood of them does not block other
/// events.
const MAX_PER_ROUND: u32 = 64;
/// Output pipes of ended processes that background processes may still write to. Beyond this number
/// the oldest is closed.
const MAX_ORPHANED_PIPES: usize = 256;
const IMMEDIATELY: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const DRAIN_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Entry point of the agent, started as the command of a box. With arguments it is the entrypoint
/// shim of a container, which may execute the agent as the container's command.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.peek().is_some() {
        return shim::main(arguments);
    }
    let reason = match run() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(AgentError::Frame(error)) => error.to_string(),
        Err(AgentError::Kernel(errno)) => errno.to_string(),
    };
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("ringwall: the agent failed: {reason}\n").as_bytes());
    ExitCode::FAILURE
}

/// Why the agent failed.
#[derive(Debug)]
enum AgentError {
    Frame(FrameError),
    Kernel(Errno),
}

impl From<Errno> for AgentError {
    fn from(errno: Errno) -> Self {
        AgentError::Kernel(errno)
    }
}

impl From<FrameError> for AgentError {
    fn from(error: FrameError) -> Self {
        AgentError::Frame(error)
    }
}

fn run() -> Result<(), AgentError> {
    sys::close_inherited_descriptors();
    let _ = rustix::thread::set_name(c"ringwall-agent");
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    sys::reset_signals();
    // Includes SIGPIPE.
    sys::set_signal_mask(true);
    let signals = sys::signal_descriptor()?;
    rustix::io::ioctl_fionbio(stdout(), true)?;
    let mut agent = Agent {
        isolation: ProcessIsolation::prepare(),
        processes: BTreeMap::new(),
        outgoing: Vec::new(),
        sent: 0,
        orphaned_pipes: Vec::new(),
        buffer: vec![0; CHUNK],
    };
    let mut frames = FrameReader::new(MAX_TO_AGENT);
    let isolated = if agent.isolation.is_some() { Enabled::Yes } else { Enabled::No };
    agent.emit(&FromAgent::Ready { isolated })?;
    let mut more_to_reap = false;
    loop {
        let ready = agent.wait(&signals, more_to_reap)?;
        if ready.contains(&Ready::Request) {
            match rustix::io::retry_on_intr(|| rustix::io::read(stdin(), frames.space())) {
                Ok(0) => return Ok(()),
                Ok(count) => frames.filled(count),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            while let Some(body) = frames.take()? {
                agent.handle(read(body)?)?;
            }
        }
        if more_to_reap || ready.contains(&Ready::Signal) {
            // Signals only wake the loop: their number and sender can be forged by the box.
            for _ in 0..MAX_PER_ROUND {
                if sys::read_signal(signals.as_fd()).is_err() {
                    break;
                }
            }
            more_to_reap = agent.reap()?;
        }
        for one in &ready {
            agent.serve(*one)?;
        }
        agent.report_ended()?;
        agent.send()?;
    }
}

/// A descriptor on which an operation would not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Request,
    Signal,
    Server,
    Output(ProcessId, usize),
    Input(ProcessId, usize),
    OrphanedPipe(usize),
}

struct Agent {
    isolation: Option<ProcessIsolation>,
    processes: BTreeMap<ProcessId, SessionProcess>,
    /// Outgoing frames; the first `sent` bytes are sent.
    outgoing: Vec<u8>,
    sent: usize,
    orphaned_pipes: Vec<Option<OwnedFd>>,
    buffer: Vec<u8>,
}

impl Agent {
    fn wait(&self, signals: &OwnedFd, more_to_reap: bool) -> Result<Vec<Ready>, Errno> {
        let (input, output) = (stdin(), stdout());
        let mut names = vec![Ready::Request, Ready::Signal];
        let mut events = vec![
            PollFd::from_borrowed_fd(input, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let unsent = self.outgoing.len() - self.sent;
        if unsent > 0 {
            names.push(Ready::Server);
            events.push(PollFd::from_borrowed_fd(output, PollFlags::OUT));
        }
        for (id, process) in &self.processes {
            for (index, end) in process.readable().filter(|_| unsent < MAX_UNSENT) {
                names.push(Ready::Output(*id, index));
                events.push(PollFd::from_borrowed_fd(end, PollFlags::IN));
            }
            for (index, end) in process.writable() {
                names.push(Ready::Input(*id, index));
                events.push(PollFd::from_borrowed_fd(end, PollFlags::OUT));
            }
        }
        for (index, end) in self.orphaned_pipes.iter().enumerate() {
            if let Some(end) = end {
                names.push(Ready::OrphanedPipe(index));
                events.push(PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN));
            }
        }
        let timeout = match more_to_reap {
            true => Some(&IMMEDIATELY),
            false => self.processes.values().any(SessionProcess::is_draining).then_some(&DRAIN_INTERVAL),
        };
        match rustix::event::poll(&mut events, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_ready = |event: &PollFd<'_>| !event.revents().is_empty();
        Ok(names.into_iter().zip(&events).filter(|(_, event)| is_ready(event)).map(|(name, _)| name).collect())
    }

    fn handle(&mut self, message: ToAgent<'_>) -> Result<(), FrameError> {
        let outgoing = &mut self.outgoing;
        let mut outcome = Ok(());
        let mut emit = |report: &FromAgent<'_>| outcome = outcome.and(append(report, outgoing));
        match message {
            ToAgent::Start { process: id, spec } => match SessionProcess::start(id, *spec, self.isolation.as_ref()) {
                Ok(process) => {
                    emit(&FromAgent::Started { process: id });
                    self.processes.insert(id, process);
                }
                Err(error) => {
                    let errno = error.errno.raw_os_error();
                    emit(&FromAgent::NotStarted { process: id, errno, tried: truncate(&error.tried) });
                }
            },
            ToAgent::Input { process, to, bytes } => {
                if let Some(process) = self.processes.get_mut(&process) {
                    process.input(to, bytes, &mut emit)?;
                }
            }
            ToAgent::CloseInput { process, to } => {
                if let Some(process) = self.processes.get_mut(&process) {
                    process.close_input(to, &mut emit);
                }
            }
            ToAgent::OutputConsumed { process, from, bytes } => {
                if let Some(process) = self.processes.get_mut(&process) {
                    process.consumed(from, bytes);
                }
            }
            ToAgent::Signal { process, number, target } => {
                if let Some(process) = self.processes.get_mut(&process).filter(|process| !process.has_exited()) {
                    signal(process, number, target);
                }
            }
            ToAgent::Resize { process, size } => {
                if let Some(process) = self.processes.get(&process) {
                    process.resize(size);
                }
            }
        }
        outcome
    }

    /// Reaps ended processes. Returns whether there may be more.
    fn reap(&mut self) -> Result<bool, FrameError> {
        for _ in 0..MAX_PER_ROUND {
            let Some((pid, status, usage)) = sys::reap() else { return Ok(false) };
            // Where the agent is PID 1, it also reaps orphans of all processes.
            let found = self.processes.values_mut().find(|process| process.leader == pid && !process.has_exited());
            let Some(process) = found else { continue };
            if process.on_exit == OnExit::KillSession {
                signal_session(process.leader, libc::SIGKILL);
            }
            process.exited();
            let exited = FromAgent::Exited {
                process: process.id,
                ending: ending(status),
                cpu_microseconds: usage.cpu_microseconds,
                peak_memory_bytes: usage.largest_resident_bytes,
            };
            append(&exited, &mut self.outgoing)?;
        }
        Ok(true)
    }

    fn serve(&mut self, ready: Ready) -> Result<(), FrameError> {
        let outgoing = &mut self.outgoing;
        let mut outcome = Ok(());
        let mut emit = |report: &FromAgent<'_>| outcome = outcome.and(append(report, outgoing));
        match ready {
            Ready::Request | Ready::Signal | Ready::Server => {}
            Ready::Output(id, index) => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.read(index, &mut self.buffer, &mut emit);
                }
            }
            Ready::Input(id, index) => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.write(index, &mut emit);
                }
            }
            Ready::OrphanedPipe(index) => {
                if let Some(Some(end)) = self.orphaned_pipes.get(index) {
                    match rustix::io::read(end, &mut self.buffer) {
                        Ok(1..) | Err(Errno::AGAIN | Errno::INTR) => {}
                        Ok(0) | Err(_) => self.orphaned_pipes[index] = None,
                    }
                }
            }
        }
        outcome
    }

    /// Reports processes whose output is complete. Background processes may keep writing to their
    /// pipes, which are read and discarded.
    fn report_ended(&mut self) -> Result<(), FrameError> {
        self.orphaned_pipes.retain(Option::is_some);
        let mut outcome = Ok(());
        for process in self.processes.values_mut().filter(|process| process.is_draining()) {
            // A terminal without further output does not wake poll, but its drain time may be over.
            process.read(0, &mut self.buffer, &mut |report| outcome = outcome.and(append(report, &mut self.outgoing)));
        }
        outcome?;
        let done: Vec<ProcessId> =
            self.processes.values().filter(|process| process.is_done()).map(|process| process.id).collect();
        for id in done {
            append(&FromAgent::Ended { process: id }, &mut self.outgoing)?;
            self.orphaned_pipes
                .extend(self.processes.remove(&id).into_iter().flat_map(SessionProcess::into_output_pipes).map(Some));
        }
        let too_many = self.orphaned_pipes.len().saturating_sub(MAX_ORPHANED_PIPES);
        self.orphaned_pipes.drain(..too_many);
        Ok(())
    }

    fn emit(&mut self, report: &FromAgent<'_>) -> Result<(), FrameError> {
        append(report, &mut self.outgoing)
    }

    fn send(&mut self) -> Result<(), Errno> {
        while self.sent < self.outgoing.len() {
            match rustix::io::write(stdout(), &self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        if self.sent == self.outgoing.len() {
            self.outgoing.clear();
            self.sent = 0;
        } else if self.sent > MAX_UNSENT {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

fn signal(process: &mut SessionProcess, number: i32, target: SignalTarget) {
    match target {
        SignalTarget::Group => {
            if let Some(signal) = Signal::from_named_raw(number) {
                let _ = rustix::process::kill_process_group(process.leader, signal);
            }
        }
        SignalTarget::Session => {
            if matches!(number, libc::SIGTERM | libc::SIGKILL) {
                process.on_exit = OnExit::KillSession;
            }
            signal_session(process.leader, number);
        }
    }
}

fn ending(status: ExitStatus) -> Ending {
    match status.signal() {
        Some(signal) => Ending::Signalled(signal),
        None => Ending::Exited(status.code().unwrap_or(0)),
    }
}

/// Bounds the length of the report.
fn truncate(text: &str) -> &str {
    const MAX_REPORTED_PATH: usize = 4096;
    &text[..text.floor_char_boundary(MAX_REPORTED_PATH)]
}
