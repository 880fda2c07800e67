//! The session processes of one box: their state, and which messages of the agent are possible
//! next.
//!
//! A process is requested, started, exited and ended, in this order; any other order is a protocol
//! error. When the box is gone, every unfinished process gets the reason, and no other starts.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use ringwall_jail::agent::frame::{Enabled, FrameError, FromAgent, InputStream, OutputStream, ProcessId, ToAgent};
use ringwall_jail::report::Ending;
use tokio::sync::{RwLock, watch};

use super::clock::Clock;
use super::input::Window;
use super::output::Buffer;
use super::writer::AgentWriter;
use crate::cgroup::freezer::Pause;
use crate::error::Error;
use crate::running::BoxControl;

/// Maximum number of processes at a time; each may buffer as much as its windows allow.
const MAX_PROCESSES: usize = 64;
/// Larger than any real offset; the record stores signed 64-bit integers.
const MAX_OFFSET: u64 = i64::MAX as u64;
const MAX_ERRNO: i32 = 4095;
const LAST_SIGNAL: i32 = 64;

/// Why a box has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Death {
    /// The server ended it.
    Ordered,
    /// The memory limit was reached, and the agent or the whole box was killed.
    OutOfMemory,
    /// The box broke a rule; the text says which.
    Itself(String),
}

/// The state of a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Life {
    /// Before the agent's first message.
    Waking,
    AgentConnection,
    Paused,
    Over(Death),
}

/// The progress of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    Asked,
    NotStarted { errno: i32, tried: String },
    Started,
    Exited(Exit),
    Ended(Exit),
    Lost(Death),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) ending: Ending,
    pub(crate) cpu_microseconds: u64,
    pub(crate) peak_memory_bytes: u64,
    /// By the box's clock.
    pub(crate) at: Duration,
}

/// Shared by all tasks and handles of one box.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) control: Arc<dyn BoxControl>,
    pub(crate) clock: Clock,
    pub(crate) life: watch::Sender<Life>,
    /// For commands and input. Urgent messages use [`Shared::order`].
    pub(crate) writer: AgentWriter,
    processes: Mutex<SessionProcesses>,
    /// The wanted state. Write-locked while the state changes, read-locked by operations that need
    /// a running box.
    pub(crate) wanted: Arc<RwLock<Pause>>,
    /// Whether processes are isolated from each other, as the agent reports before the first one.
    pub(crate) isolated: OnceLock<Enabled>,
    /// The first reason to end the box.
    doom: OnceLock<Death>,
}

#[derive(Debug, Default)]
struct SessionProcesses {
    next: u32,
    entries: HashMap<ProcessId, Entry>,
    over: Option<Death>,
}

/// The receiving ends of one process.
#[derive(Debug)]
struct Entry {
    outlets: [Option<Arc<Buffer>>; 3],
    inlets: [Option<Arc<Window>>; 2],
    progress: watch::Sender<Progress>,
}

/// The ends for the caller.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) id: ProcessId,
    pub(crate) stdout: Arc<Buffer>,
    pub(crate) stderr: Option<Arc<Buffer>>,
    pub(crate) stdin: Option<Arc<Window>>,
    pub(crate) channel: Option<(Arc<Window>, Arc<Buffer>)>,
    pub(crate) progress: watch::Receiver<Progress>,
}

/// The streams that a process needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) stdin: Enabled,
    pub(crate) stderr: Enabled,
    pub(crate) channel: Enabled,
}

impl Shared {
    pub(crate) fn new(control: Arc<dyn BoxControl>, writer: AgentWriter) -> Self {
        Shared {
            control,
            clock: Clock::begin(),
            life: watch::Sender::new(Life::Waking),
            writer,
            processes: Mutex::default(),
            wanted: Arc::new(RwLock::new(Pause::End)),
            isolated: OnceLock::new(),
            doom: OnceLock::new(),
        }
    }

    /// Sends an urgent message. An agent that reads so slowly that the queue is full ends the box.
    pub(crate) fn order(&self, order: &ToAgent<'_>) {
        if self.writer.say_urgently(order).is_err() {
            self.end_for(Death::Itself("its agent does not listen".to_owned()));
        }
    }

    /// Ends the box; the first reason is kept.
    pub(crate) fn end_for(&self, reason: Death) {
        let _ = self.doom.set(reason);
        self.control.kill();
    }

    /// The reason if the box was ended.
    pub(crate) fn doom(&self) -> Option<&Death> {
        self.doom.get()
    }

    pub(crate) fn register(&self, wanted: Wanted) -> Result<Registered, Error> {
        let mut processes = self.lock();
        if let Some(death) = &processes.over {
            return Err(death.to_error());
        }
        if processes.entries.len() >= MAX_PROCESSES {
            return Err(Error::TooManyProcesses { most: MAX_PROCESSES });
        }
        processes.next = processes.next.wrapping_add(1);
        let id = ProcessId(processes.next);
        let (progress, watched) = watch::channel(Progress::Asked);
        let buffer = |given: Enabled| (given == Enabled::Yes).then(|| Arc::new(Buffer::new()));
        let window = |given: Enabled| (given == Enabled::Yes).then(|| Arc::new(Window::new()));
        let stdout = Arc::new(Buffer::new());
        let (stderr, channel_out) = (buffer(wanted.stderr), buffer(wanted.channel));
        let (stdin, channel_in) = (window(wanted.stdin), window(wanted.channel));
        let entry = Entry {
            outlets: [Some(Arc::clone(&stdout)), stderr.clone(), channel_out.clone()],
            inlets: [stdin.clone(), channel_in.clone()],
            progress,
        };
        processes.entries.insert(id, entry);
        Ok(Registered { id, stdout, stderr, stdin, channel: channel_in.zip(channel_out), progress: watched })
    }

    /// Handles one message of the agent. Fails if the message is not possible in the current state.
    pub(crate) fn hear(&self, said: &FromAgent<'_>) -> Result<(), FrameError> {
        if let FromAgent::Ready { isolated } = *said {
            return self.wake(isolated);
        }
        if *self.life.borrow() == Life::Waking {
            return Err(FrameError);
        }
        let mut processes = self.lock();
        let SessionProcesses { entries, .. } = &mut *processes;
        let entry = |process: &ProcessId| entries.get(process).ok_or(FrameError);
        match *said {
            FromAgent::Ready { .. } => Err(FrameError),
            FromAgent::Started { process } => entry(&process)?.advance(Progress::Started),
            // A path contains no NUL, and the record cannot store one.
            FromAgent::NotStarted { errno, tried, .. } if !(1..=MAX_ERRNO).contains(&errno) || tried.contains('\0') => {
                Err(FrameError)
            }
            FromAgent::NotStarted { process, errno, tried } => {
                entry(&process)?.advance(Progress::NotStarted { errno, tried: tried.to_owned() })?;
                entries.remove(&process);
                Ok(())
            }
            FromAgent::Output { process, from, bytes } => {
                let entry = entry(&process)?;
                if *entry.progress.borrow() == Progress::Asked {
                    return Err(FrameError);
                }
                let index = match from {
                    OutputStream::Stdout => 0,
                    OutputStream::Stderr => 1,
                    OutputStream::Channel => 2,
                };
                let room = entry.outlets[index].as_ref().ok_or(FrameError)?.push(bytes)?;
                drop(processes);
                if let Some(bytes) = room {
                    self.order(&ToAgent::OutputConsumed { process, from, bytes });
                }
                Ok(())
            }
            FromAgent::InputConsumed { process, to, bytes } => entry(&process)?.inlet(to)?.taken(bytes),
            FromAgent::InputClosed { process, to } => entry(&process)?.inlet(to)?.close(),
            FromAgent::Exited { process, ending, cpu_microseconds, peak_memory_bytes } => {
                if !is_possible(ending) || [cpu_microseconds, peak_memory_bytes].iter().any(|count| *count > MAX_OFFSET)
                {
                    return Err(FrameError);
                }
                let exit = Exit { ending, cpu_microseconds, peak_memory_bytes, at: self.clock.now() };
                let entry = entry(&process)?;
                entry.advance(Progress::Exited(exit))?;
                entry.inlets.iter().flatten().for_each(|window| window.end());
                Ok(())
            }
            FromAgent::Ended { process } => {
                let found = entry(&process)?;
                let exit = match *found.progress.borrow() {
                    Progress::Exited(exit) => exit,
                    _ => return Err(FrameError),
                };
                found.close();
                found.progress.send_replace(Progress::Ended(exit));
                entries.remove(&process);
                Ok(())
            }
        }
    }

    fn wake(&self, isolated: Enabled) -> Result<(), FrameError> {
        // No process that could write in the agent's place exists yet.
        self.isolated.set(isolated).map_err(|_| FrameError)?;
        let mut outcome = Err(FrameError);
        self.life.send_if_modified(|life| {
            let is_first = *life == Life::Waking;
            if is_first {
                *life = Life::AgentConnection;
                outcome = Ok(());
            }
            is_first
        });
        outcome
    }

    /// Marks the box as dead and gives all waiters the reason.
    pub(crate) fn mark_dead(&self, death: Death) {
        let mut processes = self.lock();
        processes.over = Some(death.clone());
        for (_, entry) in processes.entries.drain() {
            entry.close();
            entry.progress.send_modify(|progress| {
                *progress = match progress {
                    Progress::Exited(exit) => Progress::Ended(*exit),
                    _ => Progress::Lost(death.clone()),
                };
            });
        }
        drop(processes);
        self.life.send_replace(Life::Over(death));
    }

    fn lock(&self) -> MutexGuard<'_, SessionProcesses> {
        self.processes.lock()
    }
}

impl Entry {
    fn advance(&self, to: Progress) -> Result<(), FrameError> {
        let mut outcome = Err(FrameError);
        self.progress.send_if_modified(|progress| {
            let fits = matches!(
                (&*progress, &to),
                (Progress::Asked, Progress::Started | Progress::NotStarted { .. })
                    | (Progress::Started, Progress::Exited(_))
            );
            if fits {
                *progress = to;
                outcome = Ok(());
            }
            fits
        });
        outcome
    }

    fn inlet(&self, to: InputStream) -> Result<&Window, FrameError> {
        let index = match to {
            InputStream::Stdin => 0,
            InputStream::Channel => 1,
        };
        self.inlets[index].as_deref().ok_or(FrameError)
    }

    fn close(&self) {
        self.outlets.iter().flatten().for_each(|buffer| buffer.end());
        self.inlets.iter().flatten().for_each(|window| window.end());
    }
}

/// True if a process can end like this.
fn is_possible(ending: Ending) -> bool {
    match ending {
        Ending::Exited(code) => (0..=0xff).contains(&code),
        Ending::Signalled(signal) => (1..=LAST_SIGNAL).contains(&signal),
        // Only PID 1 reports this, not the agent.
        Ending::OverMemory => false,
    }
}

impl Death {
    pub(crate) fn to_error(&self) -> Error {
        let why = match self {
            Death::Ordered => "it was told to".to_owned(),
            Death::OutOfMemory => "its memory ran out".to_owned(),
            Death::Itself(why) => why.clone(),
        };
        Error::BoxDied { why }
    }
}
