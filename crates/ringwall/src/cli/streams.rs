//! Copies bytes between the standard streams of this process and those of the box.
//!
//! The box does not get the descriptors of this process, so it cannot reach the file or terminal behind
//! them. Each stream in use has its own thread, so a reader that stops reading blocks only that stream.

use std::io::{ErrorKind, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringwall_executor::{Captured, Input, Output as BoxOutput, Streams, WindowSize, capture, pass_on};
use rustix::event::{PollFd, PollFlags};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use rustix::time::Timespec;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A terminal returns this errno when its other end is closed.
const EIO: i32 = 5;
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const DEFAULT_SIZE: WindowSize = WindowSize { rows: 24, columns: 80 };

/// The tasks that forward or capture output; `finish` waits for the last byte.
pub(crate) struct Output {
    box_end: Arc<BoxEnd>,
    tasks: [Option<JoinHandle<std::io::Result<Captured>>>; 2],
    raw_terminal: Option<RawTerminal>,
}

impl Output {
    pub(crate) fn none() -> Self {
        Output { box_end: Arc::default(), tasks: [None, None], raw_terminal: None }
    }

    /// Call after the end of the box. Waits until everything is written and restores the terminal.
    pub(crate) async fn finish(self) -> std::io::Result<[Captured; 2]> {
        self.box_end.flag.store(true, Ordering::Release);
        self.box_end.notify.notify_waiters();
        let [first, second] = self.tasks;
        let kept = (outcome_of(first).await, outcome_of(second).await);
        drop(self.raw_terminal);
        Ok([kept.0?, kept.1?])
    }
}

/// Set when no process of the box is left. The streams may stay open, because a box can pass their write
/// ends to another box; readers then stop when a stream is empty.
#[derive(Default)]
struct BoxEnd {
    flag: AtomicBool,
    notify: Notify,
}

/// The result of a task. A closed reader or terminal is not an error: the command gets SIGPIPE.
async fn outcome_of(task: Option<JoinHandle<std::io::Result<Captured>>>) -> std::io::Result<Captured> {
    let Some(task) = task else { return Ok(Captured::default()) };
    match task.await.unwrap_or_else(|error| Err(error.into())) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(EIO) => {
            Ok(Captured::default())
        }
        other => other,
    }
}

/// Forwards standard input, and captures output up to `bounds` bytes for stdout and stderr. Not for a
/// terminal.
pub(crate) fn capture_output(streams: Streams, bounds: (u64, u64)) -> Output {
    let Some([stdin, stdout, stderr]) = streams.into_pipes() else { return Output::none() };
    forward_stdin(stdin);
    let box_end = Arc::<BoxEnd>::default();
    let stdout = spawn_when_readable(stdout, &box_end, move |stdout, box_end| capture(stdout, bounds.0, box_end));
    let stderr = spawn_when_readable(stderr, &box_end, move |stderr, box_end| capture(stderr, bounds.1, box_end));
    Output { box_end, tasks: [Some(stdout), Some(stderr)], raw_terminal: None }
}

/// Forwards standard input and output.
pub(crate) fn forward_output(streams: Streams) -> Output {
    if let Streams { stdin, stdout: Some(BoxOutput::Pipe(terminal)), stderr: None } = streams {
        let raw_terminal = RawTerminal::enter();
        if let Some(Input::Pipe(keys)) = stdin {
            forward_stdin(keys);
        }
        if let Ok(terminal) = terminal.try_clone() {
            follow_size(terminal);
        }
        let box_end = Arc::<BoxEnd>::default();
        let flag = Arc::clone(&box_end);
        let screen = tokio::task::spawn_blocking(move || forward(&terminal, rustix::stdio::stdout(), &flag.flag));
        return Output { box_end, tasks: [Some(screen), None], raw_terminal };
    }
    let Some([stdin, stdout, stderr]) = streams.into_pipes() else { return Output::none() };
    forward_stdin(stdin);
    let box_end = Arc::<BoxEnd>::default();
    let stdout =
        spawn_when_readable(stdout, &box_end, |from, box_end| forward(&from, rustix::stdio::stdout(), box_end));
    let stderr =
        spawn_when_readable(stderr, &box_end, |from, box_end| forward(&from, rustix::stdio::stderr(), box_end));
    Output { box_end, tasks: [Some(stdout), Some(stderr)], raw_terminal: None }
}

/// Copies standard input into the box in a thread that ends when either side is closed. It is not
/// waited for.
fn forward_stdin(into: OwnedFd) {
    if let Ok(input) = rustix::stdio::stdin().try_clone_to_owned()
        && !is_null_device(&input)
    {
        std::thread::spawn(move || copy(input, into));
    }
}

/// `/dev/null` has no input, so it needs no thread.
fn is_null_device(file: &OwnedFd) -> bool {
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::fstat(file).is_ok_and(|status| status.st_rdev == null)
}

/// Runs `work` in a thread once the stream is readable. A stream without output needs no thread.
fn spawn_when_readable(
    stream: OwnedFd,
    box_end: &Arc<BoxEnd>,
    work: impl FnOnce(OwnedFd, &AtomicBool) -> std::io::Result<Captured> + Send + 'static,
) -> JoinHandle<std::io::Result<Captured>> {
    let box_end = Arc::clone(box_end);
    tokio::spawn(async move {
        let stream = Receiver::from_owned_fd(stream)?;
        // Registered before the flag is read; otherwise a notification between the two would be lost.
        let ended = box_end.notify.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if !box_end.flag.load(Ordering::Acquire) {
            tokio::select! {
                ready = stream.readable() => ready?,
                () = ended => {}
            }
        }
        let stream = stream.into_blocking_fd()?;
        let mut events = [PollFd::new(&stream, PollFlags::IN)];
        let silent = !matches!(rustix::event::poll(&mut events, Some(&NO_WAIT)), Ok(1..))
            || !events[0].revents().contains(PollFlags::IN);
        if silent && (box_end.flag.load(Ordering::Acquire) || events[0].revents().contains(PollFlags::HUP)) {
            return Ok(Captured::default());
        }
        let flag = Arc::clone(&box_end);
        tokio::task::spawn_blocking(move || work(stream, &flag.flag)).await?
    })
}

/// Copies a stream of the box to one of this process. If that one is closed, the box's stream is closed
/// too, so that the command gets SIGPIPE.
fn forward(from: &OwnedFd, to: BorrowedFd<'_>, box_end: &AtomicBool) -> std::io::Result<Captured> {
    pass_on(from, &to.try_clone_to_owned()?, box_end)?;
    Ok(Captured::default())
}

/// Copies standard input until its end.
fn copy(from: OwnedFd, to: OwnedFd) -> std::io::Result<()> {
    pass_on(&from, &to, &AtomicBool::new(false))
}

/// The size of the terminal on standard input, or [`DEFAULT_SIZE`].
pub(crate) fn window_size() -> WindowSize {
    tcgetwinsize(rustix::stdio::stdin())
        .map(|size| WindowSize { rows: size.ws_row, columns: size.ws_col })
        .unwrap_or(DEFAULT_SIZE)
}

/// Resizes the box's terminal on each SIGWINCH.
fn follow_size(terminal: OwnedFd) {
    let Ok(mut resized) = signal(SignalKind::window_change()) else { return };
    tokio::spawn(async move {
        while resized.recv().await.is_some() {
            if let Ok(size) = tcgetwinsize(rustix::stdio::stdin()) {
                let _ = tcsetwinsize(terminal.as_fd(), size);
            }
        }
    });
}

/// Raw mode of the terminal on standard input, so that every key reaches the box's terminal. Dropping it
/// restores the old mode.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn enter() -> Option<Self> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        let before = tcgetattr(rustix::stdio::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &raw).ok()?;
        Some(RawTerminal { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &self.before);
    }
}
