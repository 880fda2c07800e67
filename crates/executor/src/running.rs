//! A box while it runs: orders go in, reports come out, and its end is waited for to the last process.
//!
//! The time limit is kept here, on the monotonic clock: SIGTERM, a moment to obey, then the end. Dropping a
//! running box ends it.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jail::report::{Ending as JailEnding, Order, Protection, Report, StepTime};
use jail::wire;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::error::Error;
use crate::groups::Groups;
use crate::kernel_file;
use crate::outcome::{Ending, Outcome, Usage};
use crate::shelf::Shelf;

/// How long a box may take to obey SIGTERM.
const GRACE: Duration = Duration::from_secs(1);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
const ENOENT: i32 = 2;

/// The outer ends of the command's standard streams.
#[derive(Debug)]
pub enum Streams {
    Pipes { stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd },
    Terminal(OwnedFd),
}

/// A started box.
#[derive(Debug)]
pub struct Running {
    /// Taken by whoever moves the bytes.
    pub streams: Option<Streams>,
    handle: Handle,
    began: Instant,
    time_limit: Option<Duration>,
    protections: Vec<Protection>,
    steps: Vec<StepTime>,
    groups: Groups,
    shelf: Option<Arc<Shelf>>,
}

/// Gives orders to a running box, from anywhere.
#[derive(Debug, Clone)]
pub struct Handle {
    control: Arc<UnixStream>,
    init: Arc<OnceLock<OwnedFd>>,
}

impl Handle {
    /// Sends a signal to every process in the box. A box that has ended ignores it.
    pub fn signal(&self, number: i32) {
        let _ = wire::send(self.control.as_ref(), &Order::Signal(number), &[]);
    }

    /// Ends the box now: without its PID 1 no process of it lives.
    pub fn kill(&self) {
        if let Some(init) = self.init.get() {
            let _ = pidfd_send_signal(init, Signal::KILL);
        }
    }

    /// Asks with a signal, and after a moment insists.
    pub async fn stop(&self, signal: i32) {
        self.signal(signal);
        tokio::time::sleep(GRACE).await;
        self.kill();
    }
}

impl Running {
    pub(crate) fn new(
        control: UnixStream,
        time_limit_ms: u64,
        groups: Groups,
        shelf: Option<Arc<Shelf>>,
        steps: Vec<StepTime>,
    ) -> Self {
        let time_limit = (time_limit_ms != policy::UNLIMITED).then(|| Duration::from_millis(time_limit_ms));
        Running {
            streams: None,
            handle: Handle { control: Arc::new(control), init: Arc::default() },
            began: Instant::now(),
            time_limit,
            protections: Vec::new(),
            steps,
            groups,
            shelf,
        }
    }

    pub(crate) fn control(&self) -> &UnixStream {
        &self.handle.control
    }

    pub(crate) fn started(&mut self, protections: Vec<Protection>, steps: Vec<StepTime>, init: Option<OwnedFd>) {
        if let Some(init) = init {
            let _ = self.handle.init.set(init);
        }
        self.protections = protections;
        self.steps.extend(steps);
        self.steps.sort_by_key(|step| step.step);
        // The time limit is the command's own; making the box does not count.
        self.began = Instant::now();
    }

    /// Waits for the end of a box that was told to stop half-made.
    pub(crate) async fn hold(&self) {
        while let Ok(Some(_)) = receive(self.control()).await {}
    }

    /// Does what a spawner that was killed could not do any more.
    pub(crate) async fn clean_up(&mut self) {
        self.groups.remove().await;
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What holds in the box. Known from its start, also of one whose command then turns out not to exist.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    /// The process id of PID 1 on this side, for measuring it.
    pub fn init_pid(&self) -> Option<u32> {
        let handle = self.handle.init.get()?;
        let text = kernel_file::read(&format!("/proc/self/fdinfo/{}", handle.as_raw_fd())).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
    }

    /// Waits until the command has ended and every process of the box but PID 1 is gone. The kernel takes the rest
    /// apart while the answer is on its way; dropping the executor waits for that too.
    pub async fn wait(mut self) -> Result<Outcome, Error> {
        let handle = self.handle();
        let deadline = self.time_limit.map(|limit| self.began + limit);
        let limit = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
            handle.stop(SIGTERM).await;
            std::future::pending::<std::convert::Infallible>().await
        };
        tokio::pin!(limit);
        let (ending, usage, oom_kills) = loop {
            let report = tokio::select! {
                biased;
                report = receive(&self.handle.control) => report?,
                never = &mut limit => match never {},
            };
            match report {
                Some((Report::Ended { ending, cpu_microseconds, peak_memory_bytes, oom_kills }, _)) => {
                    let cpu = Duration::from_micros(cpu_microseconds);
                    let usage = Usage { cpu: Some(cpu), peak_memory_bytes: Some(peak_memory_bytes) };
                    break (ending, usage, oom_kills);
                }
                Some((Report::NotExecuted { tried, errno }, _)) => {
                    let command = tried.to_string_lossy().into_owned();
                    return Err(match errno {
                        ENOENT => Error::CommandNotFound { command },
                        errno => Error::CommandNotExecutable { command, errno },
                    });
                }
                Some((Report::Failed(failure), _)) => return Err(Error::Setup(failure)),
                Some((Report::Started { .. } | Report::Terminal | Report::Holding(_), _)) => {}
                // PID 1 said nothing: it was killed itself, by us at a deadline or by the kernel for memory.
                None => {
                    let counted = self.groups.count();
                    let usage = Usage {
                        // Version 1 has nobody left who counted it.
                        cpu: (counted.cpu_microseconds > 0).then(|| Duration::from_micros(counted.cpu_microseconds)),
                        peak_memory_bytes: counted.peak_memory_bytes,
                    };
                    self.clean_up().await;
                    break (JailEnding::Signalled(SIGKILL), usage, counted.oom_kills);
                }
            }
        };
        let ended = Instant::now();
        let timed_out = deadline.is_some_and(|deadline| ended >= deadline);
        Ok(Outcome {
            ending: match ending {
                _ if timed_out => Ending::TimedOut,
                JailEnding::Exited(code) => Ending::Exited(code),
                JailEnding::Signalled(signal) => Ending::Signalled(signal),
                JailEnding::OverMemory => Ending::Signalled(SIGKILL),
            },
            out_of_memory: oom_kills > 0 || ending == JailEnding::OverMemory,
            duration: ended - self.began,
            usage,
            protections: std::mem::take(&mut self.protections),
            steps: std::mem::take(&mut self.steps),
        })
    }
}

impl Drop for Running {
    /// Whatever way we got here, no box stays.
    fn drop(&mut self) {
        self.handle.kill();
        let _ = rustix::net::shutdown(self.handle.control.as_ref(), rustix::net::Shutdown::Both);
        if let Some(shelf) = &self.shelf {
            shelf.put(std::mem::take(&mut self.groups));
        }
    }
}

/// The jail's next report; `None` when it is gone. (The socket keeps message boundaries, which tokio's stream
/// type neither knows nor minds: it only waits.)
pub(crate) async fn receive(control: &UnixStream) -> Result<Option<(Report, Vec<OwnedFd>)>, Error> {
    loop {
        control.readable().await.map_err(Error::Talk)?;
        match control.try_io(Interest::READABLE, || Ok(wire::receive(control)?)) {
            Ok(message) => return Ok(message),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Said once, when PID 1 ended without having read everything; its last words come after it.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(Error::Talk(error)),
        }
    }
}
