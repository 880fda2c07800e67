//! Writes messages to an agent's standard input: directly if no message is queued and the pipe has
//! room for the whole message, otherwise by a task that waits for room. For an exchange of a few
//! bytes, waking that task takes longer than the rest.
//!
//! Commands are FIFO. Urgent messages jump the queue and are limited to 16 Ki entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringwall_jail::agent::frame::{ToAgent, append};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::{Mutex, mpsc};

/// Length of the two queues.
const MAX_URGENT: usize = 16 * 1024;
const MAX_COMMANDS: usize = 16;
/// A non-blocking write of up to this many bytes to a pipe writes all or nothing (pipe(7)).
const PIPE_BUF: usize = 4096;

#[derive(Debug)]
pub(crate) struct AgentWriter {
    pipe: Arc<SharedPipe>,
    urgent: mpsc::Sender<Vec<u8>>,
    commands: mpsc::Sender<Vec<u8>>,
}

#[derive(Debug)]
struct SharedPipe {
    /// Locked for one write.
    sender: Mutex<Sender>,
    /// Number of messages in both queues.
    queued: AtomicUsize,
}

/// The agent reads so slowly that the queue of urgent messages is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backlogged;

impl AgentWriter {
    /// The task ends when all senders are dropped or the agent has closed its input.
    pub(crate) fn open(sender: Sender) -> Self {
        let pipe = Arc::new(SharedPipe { sender: Mutex::new(sender), queued: AtomicUsize::new(0) });
        let (urgent, urgent_out) = mpsc::channel(MAX_URGENT);
        let (commands, commands_out) = mpsc::channel(MAX_COMMANDS);
        tokio::spawn(write_queued(Arc::clone(&pipe), urgent_out, commands_out));
        AgentWriter { pipe, urgent, commands }
    }

    /// Sends a short message before the queued commands.
    pub(crate) fn send_urgent(&self, message: &ToAgent<'_>) -> Result<(), Backlogged> {
        let Some(frame) = frame(message) else { return Ok(()) };
        // Counted before it is queued: from here on no message is written directly, so none overtakes it.
        self.pipe.queued.fetch_add(1, Ordering::SeqCst);
        match self.urgent.try_send(frame) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(Backlogged),
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Waits for a free entry in the queue; `None` if the agent is gone.
    pub(crate) async fn reserve(&self) -> Option<WriteTicket<'_>> {
        let permit = self.commands.reserve().await.ok()?;
        Some(WriteTicket { permit, pipe: &self.pipe })
    }

    /// Queues a message without waiting; if the queue is full, a task waits.
    pub(crate) fn send_later(&self, message: &ToAgent<'_>) {
        let Some(frame) = frame(message) else { return };
        self.pipe.queued.fetch_add(1, Ordering::SeqCst);
        if let Err(mpsc::error::TrySendError::Full(frame)) = self.commands.try_send(frame)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let commands = self.commands.clone();
            runtime.spawn(async move { commands.send(frame).await });
        }
    }
}

/// A reserved entry of the queue.
#[derive(Debug)]
pub(crate) struct WriteTicket<'a> {
    permit: mpsc::Permit<'a, Vec<u8>>,
    pipe: &'a SharedPipe,
}

impl WriteTicket<'_> {
    pub(crate) fn send(self, message: &ToAgent<'_>) {
        let Some(frame) = frame(message) else { return };
        if !self.pipe.try_write(&frame) {
            self.pipe.queued.fetch_add(1, Ordering::SeqCst);
            self.permit.send(frame);
        }
    }
}

impl SharedPipe {
    /// Returns true if the message was written. Nothing is written if that would be in part, inside
    /// another message, or before a queued one.
    fn try_write(&self, frame: &[u8]) -> bool {
        if frame.len() > PIPE_BUF || self.queued.load(Ordering::SeqCst) > 0 {
            return false;
        }
        self.sender.try_lock().is_ok_and(|sender| sender.try_write(frame).is_ok())
    }
}

/// `None` if the message is too long.
fn frame(message: &ToAgent<'_>) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    append(message, &mut frame).ok().map(|()| frame)
}

async fn write_queued(
    pipe: Arc<SharedPipe>,
    mut urgent: mpsc::Receiver<Vec<u8>>,
    mut commands: mpsc::Receiver<Vec<u8>>,
) {
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = urgent.recv() => frame,
            Some(frame) = commands.recv() => frame,
            else => return,
        };
        if pipe.sender.lock().await.write_all(&frame).await.is_err() {
            return;
        }
        pipe.queued.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use ringwall_jail::agent::frame::{CHUNK, FrameReader, InputStream, MAX_TO_AGENT, ProcessId, read};

    use super::*;

    /// With short messages (written directly), long ones (queued) and a full pipe.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn messages_arrive_whole_and_in_order() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let writer = Arc::new(AgentWriter::open(Sender::from_owned_fd(writer).unwrap()));
        let bytes = vec![7; CHUNK];
        let last = 400;
        let received = std::thread::spawn(move || {
            let (mut pipe, mut frames, mut received) =
                (std::fs::File::from(reader), FrameReader::new(MAX_TO_AGENT), Vec::new());
            loop {
                match pipe.read(frames.space()).unwrap() {
                    0 => return received,
                    count => frames.filled(count),
                }
                while let Some(body) = frames.take().unwrap() {
                    match read(body).unwrap() {
                        ToAgent::Input { process, bytes, .. } => received.push((process.0, bytes.len())),
                        ToAgent::CloseInput { process, .. } => received.push((process.0, 0)),
                        _ => panic!("only input was sent"),
                    }
                }
            }
        });
        let send_all = |process: u32| {
            let (writer, bytes) = (writer.clone(), bytes.clone());
            tokio::spawn(async move {
                for turn in 1..=last {
                    let length = if turn % 7 == 0 { CHUNK } else { turn };
                    let bytes = &bytes[..length];
                    writer.reserve().await.unwrap().send(&ToAgent::Input {
                        process: ProcessId(process),
                        to: InputStream::Stdin,
                        bytes,
                    });
                }
                writer.send_later(&ToAgent::CloseInput { process: ProcessId(process), to: InputStream::Stdin });
            })
        };
        for task in [send_all(1), send_all(2)] {
            task.await.unwrap();
        }
        drop(writer);
        let received = tokio::task::spawn_blocking(|| received.join().unwrap()).await.unwrap();
        for process in 1..=2 {
            let of_process: Vec<usize> =
                received.iter().filter(|(by, _)| *by == process).map(|(_, length)| *length).collect();
            let wanted = (1..=last).map(|turn| if turn % 7 == 0 { CHUNK } else { turn }).chain([0]);
            assert_eq!(of_process, wanted.collect::<Vec<_>>(), "{process}");
        }
    }

    /// A message that does not fit is not written in part.
    #[tokio::test]
    async fn message_that_fits_is_written_directly() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let writer = AgentWriter::open(Sender::from_owned_fd(writer).unwrap());
        writer.pipe.sender.lock().await.writable().await.unwrap();
        let message = ToAgent::CloseInput { process: ProcessId(1), to: InputStream::Stdin };
        let one = frame(&message).unwrap();
        writer.reserve().await.unwrap().send(&message);
        assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), one.len() as u64, "written by another task");
        assert_eq!(writer.pipe.queued.load(Ordering::SeqCst), 0);
        let mut sent = 1;
        while writer.pipe.try_write(&one) {
            sent += 1;
        }
        assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), sent * one.len() as u64);
        writer.reserve().await.unwrap().send(&message);
        assert_eq!(writer.pipe.queued.load(Ordering::SeqCst), 1);
        assert!(!writer.pipe.try_write(&one), "a message is queued");
    }

    /// As a resize of a terminal followed by a key.
    #[tokio::test]
    async fn urgent_message_is_not_overtaken() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let writer = AgentWriter::open(Sender::from_owned_fd(writer).unwrap());
        writer.pipe.sender.lock().await.writable().await.unwrap();
        let [first, second] = [1, 2].map(|id| ToAgent::CloseInput { process: ProcessId(id), to: InputStream::Stdin });
        writer.send_urgent(&first).unwrap();
        writer.reserve().await.unwrap().send(&second);
        let both = [frame(&first).unwrap(), frame(&second).unwrap()].concat();
        while rustix::io::ioctl_fionread(&reader).unwrap() < both.len() as u64 {
            tokio::task::yield_now().await;
        }
        let mut received = vec![0; both.len()];
        rustix::io::read(&reader, &mut received).unwrap();
        assert_eq!(received, both);
    }
}
