//! The state of one session box and of its processes, and which messages of the agent are valid in it.
//!
//! A process is requested, started, exited and ended, in this order; any other order is a protocol
//! error. When the box is dead, every unfinished process gets the reason, and no other starts.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_jail::agent::frame::{Enabled, FrameError, FromAgent, InputStream, OutputStream, ProcessId, ToAgent};
use ringwall_jail::report::Ending;
use tokio::sync::{RwLock, watch};

use super::pause::Clock;
use super::process::{ProcessOptions, ProcessStreams, SessionProcess};
use super::streams::{Buffer, ProcessInput, ProcessOutput, Window};
use super::writer::AgentWriter;
use crate::cgroup::freezer::Pause;
use crate::error::Error;
use crate::running::BoxControl;

/// Maximum number of processes at a time; each may buffer as much as its windows allow.
const MAX_PROCESSES: usize = 64;
/// Of the CPU time and memory that an agent reports; the record stores signed 64-bit integers.
const MAX_USAGE: u64 = i64::MAX as u64;
const MAX_ERRNO: i32 = 4095;
const MAX_SIGNAL: i32 = 64;

/// Why a box has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Death {
    /// The server ended it.
    Stopped,
    /// The memory limit was reached, and the agent or the whole box was killed.
    OutOfMemory,
    /// It ended by itself or broke a rule; the text says how.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BoxState {
    /// Before the agent's first message.
    Starting,
    Running,
    Paused,
    Dead(Death),
}

/// The state of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    Requested,
    NotStarted {
        errno: i32,
        tried: String,
    },
    Started,
    /// The command has ended; more output may follow.
    Exited(Exit),
    /// No further message about it follows.
    Ended(Exit),
    /// The box died before.
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
    pub(crate) state: watch::Sender<BoxState>,
    /// For commands and input. Urgent messages use [`Shared::send_urgent`].
    pub(crate) writer: AgentWriter,
    processes: Mutex<SessionProcesses>,
    /// The requested state. Write-locked while the state changes, read-locked by
    /// operations that need a running box.
    pub(crate) wanted_pause: Arc<RwLock<Pause>>,
    /// Reported by the agent before it starts a process: the processes are isolated from each other.
    pub(crate) isolated: OnceLock<Enabled>,
    /// Why the server kills the box; the first reason is kept.
    kill_reason: OnceLock<Death>,
}

#[derive(Debug, Default)]
struct SessionProcesses {
    next: u32,
    entries: HashMap<ProcessId, Entry>,
    death: Option<Death>,
}

/// One process, as messages of the agent change it.
#[derive(Debug)]
struct Entry {
    /// Stdout, stderr, channel.
    outputs: [Option<Arc<Buffer>>; 3],
    /// Stdin, channel.
    inputs: [Option<Arc<Window>>; 2],
    progress: watch::Sender<Progress>,
}

impl Shared {
    pub(crate) fn new(control: Arc<dyn BoxControl>, writer: AgentWriter) -> Self {
        Shared {
            control,
            clock: Clock::start(),
            state: watch::Sender::new(BoxState::Starting),
            writer,
            processes: Mutex::default(),
            wanted_pause: Arc::new(RwLock::new(Pause::End)),
            isolated: OnceLock::new(),
            kill_reason: OnceLock::new(),
        }
    }

    /// Sends an urgent message. An agent that reads so slowly that the queue is full ends the box.
    pub(crate) fn send_urgent(&self, message: &ToAgent<'_>) {
        if self.writer.send_urgent(message).is_err() {
            self.kill_for("its agent does not read its messages");
        }
    }

    pub(crate) fn kill(&self, reason: Death) {
        let _ = self.kill_reason.set(reason);
        self.control.kill();
    }

    pub(crate) fn kill_for(&self, failure: impl Into<String>) {
        self.kill(Death::Failed(failure.into()));
    }

    /// Set if the server kills or has killed the box.
    pub(crate) fn kill_reason(&self) -> Option<&Death> {
        self.kill_reason.get()
    }

    /// Registers a process. Returns its handle, its streams and the buffers of its outputs.
    pub(crate) fn register(
        self: &Arc<Self>,
        options: ProcessOptions,
    ) -> Result<(SessionProcess, ProcessStreams, Vec<Arc<Buffer>>), Error> {
        let mut processes = self.processes.lock();
        if let Some(death) = &processes.death {
            return Err(death.to_error());
        }
        if processes.entries.len() >= MAX_PROCESSES {
            return Err(Error::TooManyProcesses { most: MAX_PROCESSES });
        }
        processes.next = processes.next.wrapping_add(1);
        let id = ProcessId(processes.next);
        let (progress, watched) = watch::channel(Progress::Requested);
        let stdin = (options.stdin == Enabled::Yes).then(Arc::<Window>::default);
        let stdout = Arc::<Buffer>::default();
        let stderr = options.terminal.is_none().then(Arc::<Buffer>::default);
        let channel = (options.channel == Enabled::Yes).then(<(Arc<Window>, Arc<Buffer>)>::default);
        let (channel_in, channel_out) = channel.clone().unzip();
        let outputs = [Some(Arc::clone(&stdout)), stderr.clone(), channel_out];
        let buffers = outputs.iter().flatten().cloned().collect();
        processes.entries.insert(id, Entry { outputs, inputs: [stdin.clone(), channel_in], progress });
        let input = |window, to| ProcessInput::new(window, Arc::clone(self), id, to);
        let output = |buffer, from| ProcessOutput::new(buffer, Arc::clone(self), id, from);
        let streams = ProcessStreams {
            stdin: stdin.map(|window| input(window, InputStream::Stdin)),
            stdout: output(stdout, OutputStream::Stdout),
            stderr: stderr.map(|buffer| output(buffer, OutputStream::Stderr)),
            channel: channel
                .map(|(window, buffer)| (input(window, InputStream::Channel), output(buffer, OutputStream::Channel))),
        };
        Ok((SessionProcess::new(Arc::clone(self), id, watched), streams, buffers))
    }

    /// Handles one message of the agent. Fails if the message is not valid in the current state.
    pub(crate) fn handle(&self, message: &FromAgent<'_>) -> Result<(), FrameError> {
        if let FromAgent::Ready { isolated } = *message {
            return self.agent_ready(isolated);
        }
        if *self.state.borrow() == BoxState::Starting {
            return Err(FrameError);
        }
        let mut processes = self.processes.lock();
        let SessionProcesses { entries, .. } = &mut *processes;
        let entry = |process: &ProcessId| entries.get(process).ok_or(FrameError);
        match *message {
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
                if *entry.progress.borrow() == Progress::Requested {
                    return Err(FrameError);
                }
                let index = match from {
                    OutputStream::Stdout => 0,
                    OutputStream::Stderr => 1,
                    OutputStream::Channel => 2,
                };
                let update = entry.outputs[index].as_ref().ok_or(FrameError)?.push(bytes)?;
                drop(processes);
                if let Some(bytes) = update {
                    self.send_urgent(&ToAgent::OutputConsumed { process, from, bytes });
                }
                Ok(())
            }
            FromAgent::InputConsumed { process, to, bytes } => entry(&process)?.input(to)?.acknowledge(bytes),
            FromAgent::InputClosed { process, to } => entry(&process)?.input(to)?.close(),
            FromAgent::Exited { process, ending, cpu_microseconds, peak_memory_bytes } => {
                if !is_valid(ending) || [cpu_microseconds, peak_memory_bytes].iter().any(|count| *count > MAX_USAGE) {
                    return Err(FrameError);
                }
                let exit = Exit { ending, cpu_microseconds, peak_memory_bytes, at: self.clock.now() };
                let entry = entry(&process)?;
                entry.advance(Progress::Exited(exit))?;
                entry.close_inputs();
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

    fn agent_ready(&self, isolated: Enabled) -> Result<(), FrameError> {
        // No process that could write in the agent's place exists yet.
        self.isolated.set(isolated).map_err(|_| FrameError)?;
        let is_first = self.state.send_if_modified(|state| {
            let is_first = *state == BoxState::Starting;
            if is_first {
                *state = BoxState::Running;
            }
            is_first
        });
        is_first.then_some(()).ok_or(FrameError)
    }

    /// Marks the box as dead and gives all waiters the reason.
    pub(crate) fn mark_dead(&self, death: Death) {
        let mut processes = self.processes.lock();
        processes.death = Some(death.clone());
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
        self.state.send_replace(BoxState::Dead(death));
    }
}

impl Entry {
    fn advance(&self, to: Progress) -> Result<(), FrameError> {
        let is_next = self.progress.send_if_modified(|progress| {
            let is_next = matches!(
                (&*progress, &to),
                (Progress::Requested, Progress::Started | Progress::NotStarted { .. })
                    | (Progress::Started, Progress::Exited(_))
            );
            if is_next {
                *progress = to;
            }
            is_next
        });
        is_next.then_some(()).ok_or(FrameError)
    }

    fn input(&self, to: InputStream) -> Result<&Window, FrameError> {
        let index = match to {
            InputStream::Stdin => 0,
            InputStream::Channel => 1,
        };
        self.inputs[index].as_deref().ok_or(FrameError)
    }

    fn close(&self) {
        self.outputs.iter().flatten().for_each(|buffer| buffer.end());
        self.close_inputs();
    }

    fn close_inputs(&self) {
        for window in self.inputs.iter().flatten() {
            let _ = window.close();
        }
    }
}

/// True if a process can end like this.
fn is_valid(ending: Ending) -> bool {
    match ending {
        Ending::Exited(code) => (0..=0xff).contains(&code),
        Ending::Signalled(signal) => (1..=MAX_SIGNAL).contains(&signal),
        // Only PID 1 reports this, not the agent.
        Ending::OverMemory => false,
    }
}

impl Death {
    pub(crate) fn to_error(&self) -> Error {
        let why = match self {
            Death::Stopped => "the server ended it".to_owned(),
            Death::OutOfMemory => "it was out of memory".to_owned(),
            Death::Failed(why) => why.clone(),
        };
        Error::BoxDied { why }
    }
}
