//! Processes with a deadline, so that a box that hangs fails one test instead of blocking the suite. Waits on a pidfd.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Far above what any test needs; only a process that hangs reaches it.
pub const DEADLINE: Duration = Duration::from_secs(240);

/// The time in which the pipes must close after the end of the process. A process that still holds them is a failure.
const PIPES_END: Duration = Duration::from_secs(20);

/// The bytes kept of a stream; the rest is read and discarded.
const KEPT_BYTES: usize = 32 << 20;

/// How a process ended and what it wrote.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub elapsed: Duration,
    pub ending: Ending,
}

/// True if the test had to kill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Own,
    /// Killed by the test at its deadline.
    Killed,
    /// Ended, but something still holds its output open.
    PipesHeld,
}

impl Outcome {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// One line for a report: status, and the end of both streams.
    pub fn describe(&self) -> String {
        format!(
            "exit {:?} signal {:?} after {} ms ({:?}); stdout {:?}; stderr {:?}",
            self.status.code(),
            self.status.signal(),
            self.elapsed.as_millis(),
            self.ending,
            tail(&self.text()),
            tail(&self.errors()),
        )
    }
}

/// Runs a process to its end with `input` on standard input.
pub fn run(command: Command, input: Option<&[u8]>) -> io::Result<Outcome> {
    let mut live = LiveProcess::start(command)?;
    if let Some(bytes) = input {
        live.send(bytes)?;
    }
    live.finish()
}

/// A running process with its streams.
#[derive(Debug)]
pub struct LiveProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    errors: Receiver<Vec<u8>>,
    heard: Vec<u8>,
    started: Instant,
}

impl LiveProcess {
    pub fn start(mut command: Command) -> io::Result<Self> {
        let started = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, input, lines: pump(output), errors: pump(errors), heard: Vec::new(), started })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to standard input. A closed pipe is not an error.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(input) = &mut self.input else {
            return Ok(());
        };
        match input.write_all(bytes).and_then(|()| input.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    /// The next line of standard output, without its newline. An error if the stream ends or the deadline passes.
    pub fn line(&mut self) -> io::Result<String> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => {
                self.heard.extend_from_slice(&line);
                Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
            }
            Err(_) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("no further line on standard output after {:?}", tail(&String::from_utf8_lossy(&self.heard))),
            )),
        }
    }

    /// Ends the input and waits for the process and its streams.
    pub fn finish(mut self) -> io::Result<Outcome> {
        self.input = None;
        let mut ending = wait(&mut self.child, DEADLINE)?;
        let status = self.child.wait()?;
        let elapsed = self.started.elapsed();
        let (rest, first) = drain(&self.lines);
        let (stderr, second) = drain(&self.errors);
        if ending == Ending::Own && !(first && second) {
            ending = Ending::PipesHeld;
        }
        let mut stdout = std::mem::take(&mut self.heard);
        stdout.extend(rest);
        Ok(Outcome { status, stdout, stderr, elapsed, ending })
    }

    /// Kills this process only, not its children.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }
}

impl Drop for LiveProcess {
    fn drop(&mut self) {
        // A test that returns early must not leave its process. No effect after a wait.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Ending> {
    let pid = Pid::from_child(child);
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let timeout = Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    let ready = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)))?;
    if ready > 0 {
        return Ok(Ending::Own);
    }
    child.kill()?;
    Ok(Ending::Killed)
}

/// Reads a stream line by line on another thread. An endless line arrives in pieces.
fn pump(stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::with_capacity(64 * 1024, stream);
        let mut kept = 0;
        loop {
            let mut piece = Vec::new();
            match reader.by_ref().take(1 << 20).read_until(b'\n', &mut piece) {
                Ok(0) | Err(_) => return,
                Ok(length) if kept + length <= KEPT_BYTES => {
                    kept += length;
                    if sender.send(piece).is_err() {
                        return;
                    }
                }
                Ok(_) => {}
            }
        }
    });
    receiver
}

fn drain(pieces: &Receiver<Vec<u8>>) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        match pieces.recv_timeout(PIPES_END) {
            Ok(piece) => all.extend(piece),
            Err(RecvTimeoutError::Disconnected) => return (all, true),
            Err(RecvTimeoutError::Timeout) => return (all, false),
        }
    }
}

fn tail(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(600);
    text.chars().skip(skipped).collect()
}
