//! The agent's event loop: one thread, one poll. It ends when the server closes its standard input.
//!
//! Each round handles requests first, then ended processes, then streams. Outgoing frames are
//! buffered; above a limit no stream is read, so a slow server slows the processes instead of
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

use super::apart::Apart;
use super::frame::{CHUNK, Disorder, Frames, FromAgent, Given, MAX_ORDER, ToAgent, VisitId, Whom, append, read};
use super::processes::signal_session;
use super::visit::{SessionFate, Visit};
use crate::protocol::report::Ending;
use crate::{roles::shim, sys};

/// Above this number of unsent bytes, no stream is read.
const MUCH_TO_SAY: usize = 256 * 1024;
/// Signals or ended processes handled per round, so that a flood of them does not block other
/// events.
const AT_ONCE: u32 = 64;
/// Output pipes of ended processes that background processes may still write to. Beyond this number
/// the oldest is closed.
const MAX_FORGOTTEN: usize = 256;
const AT_ONCE_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Entry point of the agent, started as the command of a box. With arguments it is the entrypoint
/// shim of a container, which may execute the agent as the container's command.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.peek().is_some() {
        return shim::main(words);
    }
    let trouble = match live() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Trouble::Disorder(disorder)) => disorder.to_string(),
        Err(Trouble::Kernel(errno)) => errno.to_string(),
    };
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("ringwall: the agent failed: {trouble}\n").as_bytes());
    ExitCode::FAILURE
}

/// Why the agent failed.
#[derive(Debug)]
enum Trouble {
    Disorder(Disorder),
    Kernel(Errno),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Trouble::Kernel(errno)
    }
}

impl From<Disorder> for Trouble {
    fn from(disorder: Disorder) -> Self {
        Trouble::Disorder(disorder)
    }
}

fn live() -> Result<(), Trouble> {
    sys::close_inherited_descriptors();
    let _ = rustix::thread::set_name(c"ringwall-agent");
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    sys::reset_signals();
    // Includes SIGPIPE.
    sys::set_signal_mask(true);
    let signals = sys::signal_descriptor()?;
    rustix::io::ioctl_fionbio(stdout(), true)?;
    let mut agent = Agent {
        apart: Apart::begin(),
        visits: BTreeMap::new(),
        said: Vec::new(),
        sent: 0,
        forgotten: Vec::new(),
        buffer: vec![0; CHUNK],
    };
    let mut frames = Frames::new(MAX_ORDER);
    let apart = if agent.apart.is_some() { Given::Yes } else { Given::No };
    agent.tell(&FromAgent::Ready { apart })?;
    let mut more_to_reap = false;
    loop {
        let ready = agent.wait(&signals, more_to_reap)?;
        if ready.contains(&Ready::Orders) {
            match rustix::io::retry_on_intr(|| rustix::io::read(stdin(), frames.space())) {
                Ok(0) => return Ok(()),
                Ok(count) => frames.filled(count),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            while let Some(body) = frames.take()? {
                agent.obey(read(body)?)?;
            }
        }
        if more_to_reap || ready.contains(&Ready::Signals) {
            // Signals only wake the loop: their number and sender can be forged by the box.
            for _ in 0..AT_ONCE {
                if sys::read_signal(signals.as_fd()).is_err() {
                    break;
                }
            }
            more_to_reap = agent.reap()?;
        }
        for one in &ready {
            agent.serve(*one)?;
        }
        agent.finish()?;
        agent.send()?;
    }
}

/// A descriptor on which an operation would not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Orders,
    Signals,
    Listener,
    Outlet(VisitId, usize),
    Inlet(VisitId, usize),
    Forgotten(usize),
}

struct Agent {
    apart: Option<Apart>,
    visits: BTreeMap<VisitId, Visit>,
    /// Outgoing frames; the first `sent` bytes are sent.
    said: Vec<u8>,
    sent: usize,
    forgotten: Vec<Option<OwnedFd>>,
    buffer: Vec<u8>,
}

impl Agent {
    fn wait(&self, signals: &OwnedFd, more_to_reap: bool) -> Result<Vec<Ready>, Errno> {
        let (input, output) = (stdin(), stdout());
        let mut names = vec![Ready::Orders, Ready::Signals];
        let mut events = vec![
            PollFd::from_borrowed_fd(input, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let unsent = self.said.len() - self.sent;
        if unsent > 0 {
            names.push(Ready::Listener);
            events.push(PollFd::from_borrowed_fd(output, PollFlags::OUT));
        }
        for (id, visit) in &self.visits {
            for (index, end) in visit.readable().filter(|_| unsent < MUCH_TO_SAY) {
                names.push(Ready::Outlet(*id, index));
                events.push(PollFd::from_borrowed_fd(end, PollFlags::IN));
            }
            for (index, end) in visit.writable() {
                names.push(Ready::Inlet(*id, index));
                events.push(PollFd::from_borrowed_fd(end, PollFlags::OUT));
            }
        }
        for (index, end) in self.forgotten.iter().enumerate() {
            if let Some(end) = end {
                names.push(Ready::Forgotten(index));
                events.push(PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN));
            }
        }
        let timeout = match more_to_reap {
            true => Some(&AT_ONCE_AGAIN),
            false => self.visits.values().any(Visit::is_lingering).then_some(&SOON),
        };
        match rustix::event::poll(&mut events, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_ready = |event: &PollFd<'_>| !event.revents().is_empty();
        Ok(names.into_iter().zip(&events).filter(|(_, event)| is_ready(event)).map(|(name, _)| name).collect())
    }

    fn obey(&mut self, order: ToAgent<'_>) -> Result<(), Disorder> {
        let said = &mut self.said;
        let mut outcome = Ok(());
        let mut tell = |report: &FromAgent<'_>| outcome = outcome.and(append(report, said));
        match order {
            ToAgent::Start { visit: id, start } => match Visit::start(id, *start, self.apart.as_ref()) {
                Ok(visit) => {
                    tell(&FromAgent::Started { visit: id });
                    self.visits.insert(id, visit);
                }
                Err(refusal) => {
                    let errno = refusal.errno.raw_os_error();
                    tell(&FromAgent::NotStarted { visit: id, errno, tried: shown(&refusal.tried) });
                }
            },
            ToAgent::Input { visit, to, bytes } => {
                if let Some(visit) = self.visits.get_mut(&visit) {
                    visit.input(to, bytes, &mut tell)?;
                }
            }
            ToAgent::CloseInput { visit, to } => {
                if let Some(visit) = self.visits.get_mut(&visit) {
                    visit.close_input(to, &mut tell);
                }
            }
            ToAgent::Room { visit, from, bytes } => {
                if let Some(visit) = self.visits.get_mut(&visit) {
                    visit.room(from, bytes);
                }
            }
            ToAgent::Signal { visit, number, whom } => {
                if let Some(visit) = self.visits.get_mut(&visit).filter(|visit| !visit.has_exited()) {
                    signal(visit, number, whom);
                }
            }
            ToAgent::Resize { visit, size } => {
                if let Some(visit) = self.visits.get(&visit) {
                    visit.resize(size);
                }
            }
        }
        outcome
    }

    /// Reaps ended processes. Returns whether there may be more.
    fn reap(&mut self) -> Result<bool, Disorder> {
        for _ in 0..AT_ONCE {
            let Some((pid, status, usage)) = sys::reap() else { return Ok(false) };
            // Where the agent is PID 1, it also reaps orphans of all processes.
            let found = self.visits.values_mut().find(|visit| visit.leader == pid && !visit.has_exited());
            let Some(visit) = found else { continue };
            if visit.session == SessionFate::Ends {
                signal_session(visit.leader, libc::SIGKILL);
            }
            visit.exited();
            let exited = FromAgent::Exited {
                visit: visit.id,
                ending: how(status),
                cpu_microseconds: usage.cpu_microseconds,
                peak_memory_bytes: usage.largest_resident_bytes,
            };
            append(&exited, &mut self.said)?;
        }
        Ok(true)
    }

    fn serve(&mut self, ready: Ready) -> Result<(), Disorder> {
        let said = &mut self.said;
        let mut outcome = Ok(());
        let mut tell = |report: &FromAgent<'_>| outcome = outcome.and(append(report, said));
        match ready {
            Ready::Orders | Ready::Signals | Ready::Listener => {}
            Ready::Outlet(id, index) => {
                if let Some(visit) = self.visits.get_mut(&id) {
                    visit.read(index, &mut self.buffer, &mut tell);
                }
            }
            Ready::Inlet(id, index) => {
                if let Some(visit) = self.visits.get_mut(&id) {
                    visit.write(index, &mut tell);
                }
            }
            Ready::Forgotten(index) => {
                if let Some(Some(end)) = self.forgotten.get(index) {
                    match rustix::io::read(end, &mut self.buffer) {
                        Ok(1..) | Err(Errno::AGAIN | Errno::INTR) => {}
                        Ok(0) | Err(_) => self.forgotten[index] = None,
                    }
                }
            }
        }
        outcome
    }

    /// Reports processes whose output is complete. Background processes may keep writing to their
    /// pipes, which are read and discarded.
    fn finish(&mut self) -> Result<(), Disorder> {
        self.forgotten.retain(Option::is_some);
        let mut outcome = Ok(());
        for visit in self.visits.values_mut().filter(|visit| visit.is_lingering()) {
            // A terminal without further output does not wake poll, but its drain time may be over.
            visit.read(0, &mut self.buffer, &mut |report| outcome = outcome.and(append(report, &mut self.said)));
        }
        outcome?;
        let done: Vec<VisitId> = self.visits.values().filter(|visit| visit.is_done()).map(|visit| visit.id).collect();
        for id in done {
            append(&FromAgent::Ended { visit: id }, &mut self.said)?;
            self.forgotten.extend(self.visits.remove(&id).into_iter().flat_map(Visit::into_pipes).map(Some));
        }
        let too_many = self.forgotten.len().saturating_sub(MAX_FORGOTTEN);
        self.forgotten.drain(..too_many);
        Ok(())
    }

    fn tell(&mut self, report: &FromAgent<'_>) -> Result<(), Disorder> {
        append(report, &mut self.said)
    }

    fn send(&mut self) -> Result<(), Errno> {
        while self.sent < self.said.len() {
            match rustix::io::write(stdout(), &self.said[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        if self.sent == self.said.len() {
            self.said.clear();
            self.sent = 0;
        } else if self.sent > MUCH_TO_SAY {
            self.said.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

fn signal(visit: &mut Visit, number: i32, whom: Whom) {
    match whom {
        Whom::Group => {
            if let Some(signal) = Signal::from_named_raw(number) {
                let _ = rustix::process::kill_process_group(visit.leader, signal);
            }
        }
        Whom::Session => {
            if matches!(number, libc::SIGTERM | libc::SIGKILL) {
                visit.session = SessionFate::Ends;
            }
            signal_session(visit.leader, number);
        }
    }
}

fn how(status: ExitStatus) -> Ending {
    match status.signal() {
        Some(signal) => Ending::Signalled(signal),
        None => Ending::Exited(status.code().unwrap_or(0)),
    }
}

/// Bounds the length of the report.
fn shown(text: &str) -> &str {
    const SHOWN: usize = 4096;
    &text[..text.floor_char_boundary(SHOWN)]
}
