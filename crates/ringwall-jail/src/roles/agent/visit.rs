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

use super::apart::Apart;
use super::frame::{Base, CHUNK, Disorder, FromAgent, Given, Inlet, Outlet, Start, VisitId};
use super::outlet::{Reading, Sink, SinkKind, Source, Writing};
use crate::protocol::plan::{Command, WindowSize};
use crate::protocol::report::{Failure, Step};
use crate::roles::{
    command,
    command::{Hindrance, Streams},
};
use crate::{setup::terminal, sys};

pub(crate) const OUTLETS: [Outlet; 3] = [Outlet::Stdout, Outlet::Stderr, Outlet::Channel];
pub(crate) const INLETS: [Inlet; 2] = [Inlet::Stdin, Inlet::Channel];
/// Above the descriptor numbers that a command is given.
const ABOVE_GIVEN: i32 = 10;
/// Time after the end of a command during which all output of its terminal is sent.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Output sent after that time at most, if background processes keep printing.
const LAST_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) id: VisitId,
    pub(crate) leader: Pid,
    /// Whether the whole session is killed when its command ends.
    pub(crate) session: SessionFate,
    terminal: Option<OwnedFd>,
    outlets: [Option<Source>; 3],
    inlets: [Option<Sink>; 2],
    held: Option<Held>,
    over: Option<Over>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionFate {
    Stays,
    Ends,
}

/// Bytes from the channel, and how many bytes of stdout and stderr are to be sent before them.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    due: [u64; 2],
}

/// State after the command has ended: bytes of each stream that are still to be sent.
#[derive(Debug)]
struct Over {
    left: [u64; 3],
    last_words_until: Instant,
}

/// Why a process was not started.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) tried: String,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Refusal { errno, tried: String::new() }
    }
}

impl Visit {
    pub(crate) fn start(id: VisitId, mut start: Start, apart: Option<&Apart>) -> Result<Self, Refusal> {
        if start.base == Base::Agents {
            add_own_environment(&mut start.command);
        }
        let (streams, mut ends) = match start.terminal {
            Some(_) if !terminal::knows_keys()? => return Err(Errno::NOTTY.into()),
            Some(size) => terminal_streams(size)?,
            None => piped_streams(start.stdin)?,
        };
        let theirs = match start.channel {
            Given::Yes => Some(ends.add_channel()?),
            Given::No => None,
        };
        let leader = spawn(&start, &streams, theirs.as_ref().map(AsFd::as_fd), apart)?;
        let Ends { terminal, outlets, inlets } = ends;
        Ok(Visit { id, leader, session: SessionFate::Stays, terminal, outlets, inlets, held: None, over: None })
    }

    /// Called when the command has ended.
    pub(crate) fn exited(&mut self) {
        let is_terminal = self.terminal.is_some();
        let left = self.outlets.each_ref().map(|source| source.as_ref().map_or(0, Source::waiting));
        // The kernel moves terminal output to the master asynchronously, so its amount is unknown.
        let is_open = self.outlets[0].is_some();
        let left = if is_terminal && is_open { [u64::MAX, left[1], left[2]] } else { left };
        self.inlets = [None, None];
        self.over = Some(Over { left, last_words_until: Instant::now() + LAST_WORDS });
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.over.is_some()
    }

    /// Returns whether all output was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.held.is_none() && self.over.as_ref().is_some_and(|over| over.left == [0; 3])
    }

    /// Returns whether [`read`](Self::read) must be called soon although poll may report nothing.
    pub(crate) fn is_lingering(&self) -> bool {
        self.terminal.is_some() && self.has_exited() && !self.is_done()
    }

    /// Output streams to poll for reading.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.outlets.iter().enumerate().filter_map(|(index, source)| {
            let source = source.as_ref()?;
            let is_awaited = self.over.as_ref().is_none_or(|over| over.left[index] > 0);
            let is_free = OUTLETS[index] != Outlet::Channel || self.held.is_none();
            (source.room > 0 && is_awaited && is_free).then(|| (index, source.as_fd()))
        })
    }

    /// Input streams to poll for writing.
    pub(crate) fn writable(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let sinks = self.inlets.iter().enumerate();
        sinks.filter_map(|(index, sink)| sink.as_ref().filter(|sink| sink.has_more()).map(|sink| (index, sink.as_fd())))
    }

    /// Reads once from an output stream and sends the bytes.
    pub(crate) fn read(&mut self, index: usize, buffer: &mut [u8], tell: &mut dyn FnMut(&FromAgent<'_>)) {
        let Some(source) = &mut self.outlets[index] else { return };
        let left = self.over.as_ref().map_or(u64::MAX, |over| over.left[index]);
        let most = CHUNK.min(source.room).min(usize::try_from(left).unwrap_or(CHUNK)).min(buffer.len());
        if most == 0 {
            return;
        }
        let reading = source.read(&mut buffer[..most]);
        let from = OUTLETS[index];
        match reading {
            Reading::Some(count) if from == Outlet::Channel => self.hold(&buffer[..count]),
            Reading::Some(count) => tell(&FromAgent::Output { visit: self.id, from, bytes: &buffer[..count] }),
            Reading::Nothing => {}
            Reading::End => self.outlets[index] = None,
        }
        let has_passed = match reading {
            Reading::Some(count) => count as u64,
            Reading::Nothing if self.may_still_speak() => 0,
            Reading::Nothing | Reading::End => u64::MAX,
        };
        if let Some(over) = &mut self.over {
            let left = &mut over.left[index];
            *left = match (*left, has_passed) {
                (_, u64::MAX) => 0,
                // Unknown amount until the drain time is over: see `exited`.
                (u64::MAX, _) if Instant::now() < over.last_words_until => u64::MAX,
                (u64::MAX, passed) => LAST_BYTES.saturating_sub(passed),
                (left, passed) => left.saturating_sub(passed),
            };
        }
        if let Some(held) = &mut self.held
            && let Some(due) = held.due.get_mut(index)
        {
            *due = due.saturating_sub(has_passed);
        }
        self.release(tell);
    }

    fn may_still_speak(&self) -> bool {
        self.over.as_ref().is_none_or(|over| self.terminal.is_some() && Instant::now() < over.last_words_until)
    }

    /// Holds bytes of the channel until earlier output was sent.
    fn hold(&mut self, bytes: &[u8]) {
        let due = |index: usize| match self.terminal {
            Some(_) => 0,
            None => self.outlets[index].as_ref().map_or(0, Source::waiting),
        };
        self.held = Some(Held { due: [due(0), due(1)], bytes: bytes.to_vec() });
    }

    fn release(&mut self, tell: &mut dyn FnMut(&FromAgent<'_>)) {
        if let Some(held) = self.held.take_if(|held| held.due == [0, 0]) {
            tell(&FromAgent::Output { visit: self.id, from: Outlet::Channel, bytes: &held.bytes });
        }
    }

    pub(crate) fn room(&mut self, from: Outlet, bytes: u32) {
        let index = OUTLETS.iter().position(|outlet| *outlet == from);
        if let Some(source) = index.and_then(|index| self.outlets[index].as_mut()) {
            source.room = source.room.saturating_add(bytes as usize);
        }
    }

    /// Writes input. Input to a closed stream is discarded.
    pub(crate) fn input(
        &mut self,
        to: Inlet,
        bytes: &[u8],
        tell: &mut dyn FnMut(&FromAgent<'_>),
    ) -> Result<(), Disorder> {
        let index = index_of(to);
        if let Some(sink) = &mut self.inlets[index] {
            sink.push(bytes)?;
        }
        self.write(index, tell);
        Ok(())
    }

    pub(crate) fn close_input(&mut self, to: Inlet, tell: &mut dyn FnMut(&FromAgent<'_>)) {
        let index = index_of(to);
        if let Some(sink) = &mut self.inlets[index] {
            sink.close();
        }
        self.write(index, tell);
    }

    pub(crate) fn write(&mut self, index: usize, tell: &mut dyn FnMut(&FromAgent<'_>)) {
        let (visit, to) = (self.id, INLETS[index]);
        let Some(sink) = &mut self.inlets[index] else { return };
        let (taken, is_over) = match sink.write() {
            Writing::Taken(taken) => (taken, false),
            Writing::Done => (0, true),
            Writing::Broken => {
                tell(&FromAgent::Closed { visit, to });
                (0, true)
            }
        };
        if taken > 0 {
            tell(&FromAgent::Taken { visit, to, bytes: u32::try_from(taken).unwrap_or(u32::MAX) });
        }
        if is_over {
            self.inlets[index] = None;
        }
    }

    pub(crate) fn resize(&self, size: WindowSize) {
        if let Some(terminal) = &self.terminal {
            let _ = terminal::resize(terminal, size);
        }
    }

    /// Output pipes that background processes may still write to. Empty for a terminal.
    pub(crate) fn into_pipes(self) -> impl Iterator<Item = OwnedFd> {
        let pipes = if self.terminal.is_some() { [None, None, None] } else { self.outlets };
        pipes.into_iter().take(2).flatten().map(Source::into_end)
    }
}

fn index_of(to: Inlet) -> usize {
    match to {
        Inlet::Stdin => 0,
        Inlet::Channel => 1,
    }
}

/// The agent's ends of the streams.
#[derive(Debug, Default)]
struct Ends {
    terminal: Option<OwnedFd>,
    outlets: [Option<Source>; 3],
    inlets: [Option<Sink>; 2],
}

impl Ends {
    /// A socket that both sides read and write. Both ends are moved above the numbers that the
    /// command is given.
    fn add_channel(&mut self) -> rustix::io::Result<OwnedFd> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        self.inlets[1] = Some(Sink::new(rustix::io::fcntl_dupfd_cloexec(&ours, ABOVE_GIVEN)?, SinkKind::Socket)?);
        self.outlets[2] = Some(Source::new(ours)?);
        rustix::io::fcntl_dupfd_cloexec(&theirs, ABOVE_GIVEN)
    }
}

fn terminal_streams(size: WindowSize) -> rustix::io::Result<(Streams, Ends)> {
    let (outer, inner) = terminal::open(size)?;
    let copy = || rustix::io::fcntl_dupfd_cloexec(&outer, ABOVE_GIVEN);
    let stdin = Sink::new(copy()?, SinkKind::Pipe)?;
    let stdout = Source::new(copy()?)?;
    let ends = Ends { terminal: Some(outer), outlets: [Some(stdout), None, None], inlets: [Some(stdin), None] };
    Ok((Streams::Terminal(inner), ends))
}

fn piped_streams(stdin: Given) -> rustix::io::Result<(Streams, Ends)> {
    let (stdin, our_stdin) = match stdin {
        Given::Yes => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            (read, Some(Sink::new(write, SinkKind::Pipe)?))
        }
        Given::No => (rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?, None),
    };
    let (our_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (our_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let outlets = [Some(Source::new(our_stdout)?), Some(Source::new(our_stderr)?), None];
    Ok((Streams::Pipes([stdin, stdout, stderr]), Ends { terminal: None, outlets, inlets: [our_stdin, None] }))
}

/// Starts the command. Until execve the child shares the agent's memory, which is how it returns
/// the error.
fn spawn(
    start: &Start,
    streams: &Streams,
    channel: Option<BorrowedFd<'_>>,
    apart: Option<&Apart>,
) -> Result<Pid, Refusal> {
    let alternative = start.otherwise.as_ref().map(|name| start.command.named(name.clone()));
    let mut hindrance = None;
    let leader = sys::start_sharing_memory(&mut || {
        if let Some(Err(errno)) = apart.map(Apart::enter) {
            hindrance = Some(Hindrance::Failed(Failure::new(Step::RestrictFiles, "", errno)));
            sys::exit_now(libc::EXIT_FAILURE);
        }
        let mut met = command::attempt(&start.command, streams, channel);
        if let (Hindrance::NotExecuted { errno: Errno::NOENT, .. }, Some(alternative)) = (&met, &alternative) {
            met = command::run_program(alternative);
        }
        hindrance = Some(met);
        sys::exit_now(libc::EXIT_FAILURE)
    })?;
    match hindrance {
        None => Ok(leader),
        Some(Hindrance::Failed(failure)) => Err(Errno::from_raw_os_error(failure.errno).into()),
        Some(Hindrance::NotExecuted { errno, .. }) => {
            // The path that the caller named.
            let tried = start.command.argv.first().map(|name| name.to_string_lossy().into_owned());
            Err(Refusal { errno, tried: tried.unwrap_or_default() })
        }
    }
}

/// Adds the agent's environment under the command's, and takes the search path from the result.
fn add_own_environment(command: &mut Command) {
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
        let mut visit = Visit {
            id: VisitId(1),
            leader: rustix::process::getpid(),
            session: SessionFate::Stays,
            terminal: Some(endless()),
            outlets: [Some(Source::new(endless()).unwrap()), None, None],
            inlets: [None, None],
            held: None,
            over: None,
        };
        visit.exited();
        let (mut buffer, mut late) = (vec![0; CHUNK], 0);
        while !visit.is_done() {
            let is_late = visit.over.as_ref().is_some_and(|over| Instant::now() >= over.last_words_until);
            visit.read(0, &mut buffer, &mut |said| {
                if let (true, FromAgent::Output { bytes, .. }) = (is_late, said) {
                    late += bytes.len() as u64;
                }
            });
            visit.room(Outlet::Stdout, u32::MAX);
            assert!(late <= LAST_BYTES + CHUNK as u64, "output continues");
        }
    }
}
