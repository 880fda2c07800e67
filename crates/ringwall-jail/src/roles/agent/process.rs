//! A session process: a command in a session of its own, with its streams.
//!
//! Output that a command wrote before it wrote to its channel is sent first: when bytes arrive on
//! the channel, they are held back until what stdout and stderr contain at that moment was sent.
//! When the command has ended, the bytes left in its pipes are sent and the process is reported as
//! ended; later output of background processes is discarded.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::frame::{
    BaseEnvironment, CHUNK, Enabled, FrameError, FromAgent, InputStream, OutputStream, ProcessId, ProcessSpec,
};
use super::isolation::ProcessIsolation;
use super::streams::{InputEnd, InputKind, OutputEnd, ReadResult, WriteResult};
use crate::protocol::plan::{Command, WindowSize};
use crate::protocol::report::{Failure, Step};
use crate::roles::{
    command,
    command::{ExecFailure, Streams},
};
use crate::{setup::terminal, sys};

pub(crate) const OUTPUTS: [OutputStream; 3] = [OutputStream::Stdout, OutputStream::Stderr, OutputStream::Channel];
pub(crate) const INPUTS: [InputStream; 2] = [InputStream::Stdin, InputStream::Channel];
/// Above the descriptor numbers that a command is given.
const FIRST_FREE_FD: i32 = 10;
/// Time after the end of a command during which all output of its terminal is sent.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// Output sent after that time at most, if background processes keep printing.
const MAX_DRAIN_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) struct SessionProcess {
    pub(crate) id: ProcessId,
    pub(crate) leader: Pid,
    /// Whether the whole session is killed when its command ends.
    pub(crate) on_exit: OnExit,
    terminal: Option<OwnedFd>,
    outputs: [Option<OutputEnd>; 3],
    inputs: [Option<InputEnd>; 2],
    held: Option<HeldBytes>,
    exit: Option<Exit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnExit {
    KeepSession,
    KillSession,
}

/// Bytes from the channel, and how many bytes of stdout and stderr are to be sent before them.
#[derive(Debug)]
struct HeldBytes {
    bytes: Vec<u8>,
    before: [u64; 2],
}

/// State after the command has ended: bytes of each stream that are still to be sent.
#[derive(Debug)]
struct Exit {
    left: [u64; 3],
    drain_until: Instant,
}

/// Why a process was not started.
#[derive(Debug)]
pub(crate) struct StartError {
    pub(crate) errno: Errno,
    pub(crate) tried: String,
}

impl From<Errno> for StartError {
    fn from(errno: Errno) -> Self {
        StartError { errno, tried: String::new() }
    }
}

impl SessionProcess {
    pub(crate) fn start(
        id: ProcessId,
        mut spec: ProcessSpec,
        isolation: Option<&ProcessIsolation>,
    ) -> Result<Self, StartError> {
        if spec.base == BaseEnvironment::Agent {
            add_agent_environment(&mut spec.command);
        }
        let (streams, mut ends) = match spec.terminal {
            Some(_) if !terminal::interrupt_works()? => return Err(Errno::NOTTY.into()),
            Some(size) => terminal_streams(size)?,
            None => piped_streams(spec.stdin)?,
        };
        let command_end = match spec.channel {
            Enabled::Yes => Some(ends.add_channel()?),
            Enabled::No => None,
        };
        let leader = spawn(&spec, &streams, command_end.as_ref().map(AsFd::as_fd), isolation)?;
        let AgentEnds { terminal, outputs, inputs } = ends;
        Ok(SessionProcess {
            id,
            leader,
            on_exit: OnExit::KeepSession,
            terminal,
            outputs,
            inputs,
            held: None,
            exit: None,
        })
    }

    /// Called when the command has ended.
    pub(crate) fn exited(&mut self) {
        let is_terminal = self.terminal.is_some();
        let left = self.outputs.each_ref().map(|source| source.as_ref().map_or(0, OutputEnd::available));
        // The kernel moves terminal output to the master asynchronously, so its amount is unknown.
        let is_open = self.outputs[0].is_some();
        let left = if is_terminal && is_open { [u64::MAX, left[1], left[2]] } else { left };
        self.inputs = [None, None];
        self.exit = Some(Exit { left, drain_until: Instant::now() + DRAIN_TIME });
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.exit.is_some()
    }

    /// Returns whether all output was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.held.is_none() && self.exit.as_ref().is_some_and(|exit| exit.left == [0; 3])
    }

    /// Returns whether [`read`](Self::read) must be called soon although poll may report nothing.
    pub(crate) fn is_draining(&self) -> bool {
        self.terminal.is_some() && self.has_exited() && !self.is_done()
    }

    /// Output streams to poll for reading.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.outputs.iter().enumerate().filter_map(|(index, source)| {
            let source = source.as_ref()?;
            let is_awaited = self.exit.as_ref().is_none_or(|exit| exit.left[index] > 0);
            let is_free = OUTPUTS[index] != OutputStream::Channel || self.held.is_none();
            (source.credit > 0 && is_awaited && is_free).then(|| (index, source.as_fd()))
        })
    }

    /// Input streams to poll for writing.
    pub(crate) fn writable(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let sinks = self.inputs.iter().enumerate();
        sinks.filter_map(|(index, sink)| {
            sink.as_ref().filter(|sink| sink.has_pending()).map(|sink| (index, sink.as_fd()))
        })
    }

    /// Reads once from an output stream and sends the bytes.
    pub(crate) fn read(&mut self, index: usize, buffer: &mut [u8], emit: &mut dyn FnMut(&FromAgent<'_>)) {
        let Some(source) = &mut self.outputs[index] else { return };
        let left = self.exit.as_ref().map_or(u64::MAX, |exit| exit.left[index]);
        let most = CHUNK.min(source.credit).min(usize::try_from(left).unwrap_or(CHUNK)).min(buffer.len());
        if most == 0 {
            return;
        }
        let reading = source.read(&mut buffer[..most]);
        let from = OUTPUTS[index];
        match reading {
            ReadResult::Bytes(count) if from == OutputStream::Channel => self.hold(&buffer[..count]),
            ReadResult::Bytes(count) => emit(&FromAgent::Output { process: self.id, from, bytes: &buffer[..count] }),
            ReadResult::WouldBlock => {}
            ReadResult::Eof => self.outputs[index] = None,
        }
        let passed = match reading {
            ReadResult::Bytes(count) => count as u64,
            ReadResult::WouldBlock if self.may_have_output() => 0,
            ReadResult::WouldBlock | ReadResult::Eof => u64::MAX,
        };
        if let Some(exit) = &mut self.exit {
            let left = &mut exit.left[index];
            *left = match (*left, passed) {
                (_, u64::MAX) => 0,
                // Unknown amount until the drain time is over: see `exited`.
                (u64::MAX, _) if Instant::now() < exit.drain_until => u64::MAX,
                (u64::MAX, passed) => MAX_DRAIN_BYTES.saturating_sub(passed),
                (left, passed) => left.saturating_sub(passed),
            };
        }
        if let Some(held) = &mut self.held
            && let Some(before) = held.before.get_mut(index)
        {
            *before = before.saturating_sub(passed);
        }
        self.release(emit);
    }

    fn may_have_output(&self) -> bool {
        self.exit.as_ref().is_none_or(|exit| self.terminal.is_some() && Instant::now() < exit.drain_until)
    }

    /// Holds bytes of the channel until earlier output was sent.
    fn hold(&mut self, bytes: &[u8]) {
        let before = |index: usize| match self.terminal {
            Some(_) => 0,
            None => self.outputs[index].as_ref().map_or(0, OutputEnd::available),
        };
        self.held = Some(HeldBytes { before: [before(0), before(1)], bytes: bytes.to_vec() });
    }

    fn release(&mut self, emit: &mut dyn FnMut(&FromAgent<'_>)) {
        if let Some(held) = self.held.take_if(|held| held.before == [0, 0]) {
            emit(&FromAgent::Output { process: self.id, from: OutputStream::Channel, bytes: &held.bytes });
        }
    }

    pub(crate) fn consumed(&mut self, from: OutputStream, bytes: u32) {
        let index = OUTPUTS.iter().position(|outlet| *outlet == from);
        if let Some(source) = index.and_then(|index| self.outputs[index].as_mut()) {
            source.credit = source.credit.saturating_add(bytes as usize);
        }
    }

    /// Writes input. Input to a closed stream is discarded.
    pub(crate) fn input(
        &mut self,
        to: InputStream,
        bytes: &[u8],
        emit: &mut dyn FnMut(&FromAgent<'_>),
    ) -> Result<(), FrameError> {
        let index = index_of(to);
        if let Some(sink) = &mut self.inputs[index] {
            sink.push(bytes)?;
        }
        self.write(index, emit);
        Ok(())
    }

    pub(crate) fn close_input(&mut self, to: InputStream, emit: &mut dyn FnMut(&FromAgent<'_>)) {
        let index = index_of(to);
        if let Some(sink) = &mut self.inputs[index] {
            sink.close();
        }
        self.write(index, emit);
    }

    pub(crate) fn write(&mut self, index: usize, emit: &mut dyn FnMut(&FromAgent<'_>)) {
        let (process, to) = (self.id, INPUTS[index]);
        let Some(sink) = &mut self.inputs[index] else { return };
        let (taken, is_closed) = match sink.write() {
            WriteResult::Written(taken) => (taken, false),
            WriteResult::Done => (0, true),
            WriteResult::ReaderGone => {
                emit(&FromAgent::InputClosed { process, to });
                (0, true)
            }
        };
        if taken > 0 {
            emit(&FromAgent::InputConsumed { process, to, bytes: u32::try_from(taken).unwrap_or(u32::MAX) });
        }
        if is_closed {
            self.inputs[index] = None;
        }
    }

    pub(crate) fn resize(&self, size: WindowSize) {
        if let Some(terminal) = &self.terminal {
            let _ = terminal::resize(terminal, size);
        }
    }

    /// Output pipes that background processes may still write to. Empty for a terminal.
    pub(crate) fn into_output_pipes(self) -> impl Iterator<Item = OwnedFd> {
        let pipes = if self.terminal.is_some() { [None, None, None] } else { self.outputs };
        pipes.into_iter().take(2).flatten().map(OutputEnd::into_fd)
    }
}

fn index_of(to: InputStream) -> usize {
    match to {
        InputStream::Stdin => 0,
        InputStream::Channel => 1,
    }
}

/// The agent's ends of the streams.
#[derive(Debug, Default)]
struct AgentEnds {
    terminal: Option<OwnedFd>,
    outputs: [Option<OutputEnd>; 3],
    inputs: [Option<InputEnd>; 2],
}

impl AgentEnds {
    /// A socket that both sides read and write. Both ends are moved above the numbers that the
    /// command is given.
    fn add_channel(&mut self) -> rustix::io::Result<OwnedFd> {
        let (agent_end, command_end) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        self.inputs[1] =
            Some(InputEnd::new(rustix::io::fcntl_dupfd_cloexec(&agent_end, FIRST_FREE_FD)?, InputKind::Socket)?);
        self.outputs[2] = Some(OutputEnd::new(agent_end)?);
        rustix::io::fcntl_dupfd_cloexec(&command_end, FIRST_FREE_FD)
    }
}

fn terminal_streams(size: WindowSize) -> rustix::io::Result<(Streams, AgentEnds)> {
    let (outer, inner) = terminal::open(size)?;
    let copy = || rustix::io::fcntl_dupfd_cloexec(&outer, FIRST_FREE_FD);
    let stdin = InputEnd::new(copy()?, InputKind::Pipe)?;
    let stdout = OutputEnd::new(copy()?)?;
    let ends = AgentEnds { terminal: Some(outer), outputs: [Some(stdout), None, None], inputs: [Some(stdin), None] };
    Ok((Streams::Terminal(inner), ends))
}

fn piped_streams(stdin: Enabled) -> rustix::io::Result<(Streams, AgentEnds)> {
    let (stdin, our_stdin) = match stdin {
        Enabled::Yes => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            (read, Some(InputEnd::new(write, InputKind::Pipe)?))
        }
        Enabled::No => (rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None),
    };
    let (our_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (our_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let outputs = [Some(OutputEnd::new(our_stdout)?), Some(OutputEnd::new(our_stderr)?), None];
    Ok((Streams::Pipes([stdin, stdout, stderr]), AgentEnds { terminal: None, outputs, inputs: [our_stdin, None] }))
}

/// Starts the command. Until execve the child shares the agent's memory, which is how it returns
/// the error.
fn spawn(
    spec: &ProcessSpec,
    streams: &Streams,
    channel: Option<BorrowedFd<'_>>,
    isolation: Option<&ProcessIsolation>,
) -> Result<Pid, StartError> {
    let alternative = spec.fallback.as_ref().map(|name| spec.command.named(name.clone()));
    let mut failure = None;
    let leader = sys::start_vfork(&mut || {
        if let Some(Err(errno)) = isolation.map(ProcessIsolation::enter) {
            failure = Some(ExecFailure::Failed(Failure::new(Step::RestrictFiles, "", errno)));
            sys::exit_now(libc::EXIT_FAILURE);
        }
        let mut failed = command::try_execute(&spec.command, streams, channel);
        if let (ExecFailure::NotExecuted { errno: Errno::NOENT, .. }, Some(alternative)) = (&failed, &alternative) {
            failed = command::run_program(alternative);
        }
        failure = Some(failed);
        sys::exit_now(libc::EXIT_FAILURE)
    })?;
    match failure {
        None => Ok(leader),
        Some(ExecFailure::Failed(failure)) => Err(Errno::from_raw_os_error(failure.errno).into()),
        Some(ExecFailure::NotExecuted { errno, .. }) => {
            // The path that the caller named.
            let tried = spec.command.argv.first().map(|name| name.to_string_lossy().into_owned());
            Err(StartError { errno, tried: tried.unwrap_or_default() })
        }
    }
}

/// Adds the agent's environment under the command's, and takes the search path from the result.
fn add_agent_environment(command: &mut Command) {
    let own = std::env::vars_os().map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes()].concat());
    let given = command.environment.iter().map(|entry| entry.as_bytes().to_vec());
    let key = |entry: &[u8]| entry.split(|byte| *byte == b'=').next().unwrap_or_default().to_vec();
    let merged: BTreeMap<Vec<u8>, Vec<u8>> = own.chain(given).map(|entry| (key(&entry), entry)).collect();
    let search = merged.get(b"PATH".as_slice()).map_or(OsStr::new(""), |entry| OsStr::from_bytes(&entry[5..]));
    let directories = search.as_bytes().split(|byte| *byte == b':').filter(|directory| !directory.is_empty());
    command.search = directories.filter_map(|directory| CString::new(directory).ok()).collect();
    command.environment = merged.into_values().filter_map(|entry| CString::new(entry).ok()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// /dev/zero stands for a background process that prints without pause, so a read never returns
    /// nothing.
    #[test]
    fn terminal_output_ends_soon_after_command_despite_endless_output() {
        let endless = || rustix::fs::open(c"/dev/zero", OFlags::RDONLY, Mode::empty()).unwrap();
        let mut process = SessionProcess {
            id: ProcessId(1),
            leader: rustix::process::getpid(),
            on_exit: OnExit::KeepSession,
            terminal: Some(endless()),
            outputs: [Some(OutputEnd::new(endless()).unwrap()), None, None],
            inputs: [None, None],
            held: None,
            exit: None,
        };
        process.exited();
        let (mut buffer, mut late) = (vec![0; CHUNK], 0);
        while !process.is_done() {
            let is_late = process.exit.as_ref().is_some_and(|exit| Instant::now() >= exit.drain_until);
            process.read(0, &mut buffer, &mut |outgoing| {
                if let (true, FromAgent::Output { bytes, .. }) = (is_late, outgoing) {
                    late += bytes.len() as u64;
                }
            });
            process.consumed(OutputStream::Stdout, u32::MAX);
            assert!(late <= MAX_DRAIN_BYTES + CHUNK as u64, "output continues");
        }
    }
}
