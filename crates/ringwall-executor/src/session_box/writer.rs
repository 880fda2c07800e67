//! Writes messages to an agent's standard input: at once if none waits and the pipe has room for
//! the whole message, otherwise by a task that waits for room. In an exchange of a few bytes,
//! waking a task for each message would take much of the time.
//!
//! Commands are FIFO. Urgent messages jump the queue and are limited to 16 Ki entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringwall_jail::agent::frame::{ToAgent, append};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::sync::{Mutex, mpsc};

/// Queued messages while the agent is busy.
const MAX_URGENT: usize = 16 * 1024;
const MAX_COMMANDS: usize = 16;
/// A pipe takes this much whole or not at all (`PIPE_BUF`).
const WHOLE: usize = 4096;

#[derive(Debug)]
pub(crate) struct AgentWriter {
    line: Arc<Line>,
    urgent: mpsc::Sender<Vec<u8>>,
    orders: mpsc::Sender<Vec<u8>>,
}

#[derive(Debug)]
struct Line {
    /// Locked for one write.
    pipe: Mutex<Sender>,
    /// Number of queued messages.
    waiting: AtomicUsize,
}

/// The agent reads so slowly that the queue of urgent messages is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backlogged;

impl AgentWriter {
    /// The task ends when all senders are dropped or the agent has closed its input.
    pub(crate) fn open(pipe: Sender) -> Self {
        let line = Arc::new(Line { pipe: Mutex::new(pipe), waiting: AtomicUsize::new(0) });
        let (urgent, urgent_out) = mpsc::channel(MAX_URGENT);
        let (orders, commands_out) = mpsc::channel(MAX_COMMANDS);
        tokio::spawn(speak(Arc::clone(&line), urgent_out, commands_out));
        AgentWriter { line, urgent, orders }
    }

    /// Sends a short message ahead of the queue.
    pub(crate) fn say_urgently(&self, order: &ToAgent<'_>) -> Result<(), Backlogged> {
        let Some(frame) = frame(order) else { return Ok(()) };
        // From here on no message overtakes it.
        self.line.waiting.fetch_add(1, Ordering::SeqCst);
        match self.urgent.try_send(frame) {
            Err(mpsc::error::TrySendError::Full(_)) => Err(Backlogged),
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Waits for a place in the queue; `None` if the agent is gone.
    pub(crate) async fn place(&self) -> Option<WriteTicket<'_>> {
        let permit = self.orders.reserve().await.ok()?;
        Some(WriteTicket { permit, line: &self.line })
    }

    /// Queues a message without waiting for a place.
    pub(crate) fn say_later(&self, order: &ToAgent<'_>) {
        let Some(frame) = frame(order) else { return };
        self.line.waiting.fetch_add(1, Ordering::SeqCst);
        if let Err(mpsc::error::TrySendError::Full(frame)) = self.orders.try_send(frame)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let orders = self.orders.clone();
            runtime.spawn(async move { orders.send(frame).await });
        }
    }
}

/// A reserved place in the queue.
#[derive(Debug)]
pub(crate) struct WriteTicket<'a> {
    permit: mpsc::Permit<'a, Vec<u8>>,
    line: &'a Line,
}

impl WriteTicket<'_> {
    pub(crate) fn say(self, order: &ToAgent<'_>) {
        let Some(frame) = frame(order) else { return };
        if !self.line.take_now(&frame) {
            self.line.waiting.fetch_add(1, Ordering::SeqCst);
            self.permit.send(frame);
        }
    }
}

impl Line {
    /// Returns true if the message was written. It is never written in part, inside another
    /// message, or before a queued one.
    fn take_now(&self, frame: &[u8]) -> bool {
        if frame.len() > WHOLE || self.waiting.load(Ordering::SeqCst) > 0 {
            return false;
        }
        self.pipe.try_lock().is_ok_and(|pipe| pipe.try_write(frame).is_ok())
    }
}

/// `None` if the message is too long.
fn frame(order: &ToAgent<'_>) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    append(order, &mut frame).ok().map(|()| frame)
}

async fn speak(line: Arc<Line>, mut urgent: mpsc::Receiver<Vec<u8>>, mut orders: mpsc::Receiver<Vec<u8>>) {
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = urgent.recv() => frame,
            Some(frame) = orders.recv() => frame,
            else => return,
        };
        if line.pipe.lock().await.write_all(&frame).await.is_err() {
            return;
        }
        line.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use ringwall_jail::agent::frame::{CHUNK, FrameReader, InputStream, MAX_TO_AGENT, ProcessId, read};

    use super::*;

    /// Messages arrive whole and in order for any queue length and pipe fill.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn messages_arrive_whole_and_in_order() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let writer = Arc::new(AgentWriter::open(Sender::from_owned_fd(writer).unwrap()));
        let bytes = vec![7; CHUNK];
        let last = 400;
        let heard = std::thread::spawn(move || {
            let (mut pipe, mut frames, mut heard) =
                (std::fs::File::from(reader), FrameReader::new(MAX_TO_AGENT), Vec::new());
            loop {
                match pipe.read(frames.space()).unwrap() {
                    0 => return heard,
                    count => frames.filled(count),
                }
                while let Some(body) = frames.take().unwrap() {
                    match read(body).unwrap() {
                        ToAgent::Input { process, bytes, .. } => heard.push((process.0, bytes.len())),
                        ToAgent::CloseInput { process, .. } => heard.push((process.0, 0)),
                        _ => panic!("nobody said that"),
                    }
                }
            }
        });
        let say = |process: u32| {
            let (writer, bytes) = (writer.clone(), bytes.clone());
            tokio::spawn(async move {
                // Short messages are written at once, long ones are queued, and more than a pipe
                // holds waits for the reader.
                for turn in 1..=last {
                    let length = if turn % 7 == 0 { CHUNK } else { turn };
                    let bytes = &bytes[..length];
                    writer.place().await.unwrap().say(&ToAgent::Input {
                        process: ProcessId(process),
                        to: InputStream::Stdin,
                        bytes,
                    });
                }
                writer.say_later(&ToAgent::CloseInput { process: ProcessId(process), to: InputStream::Stdin });
            })
        };
        for said in [say(1), say(2)] {
            said.await.unwrap();
        }
        drop(writer);
        let heard = tokio::task::spawn_blocking(|| heard.join().unwrap()).await.unwrap();
        for process in 1..=2 {
            let of_process: Vec<usize> =
                heard.iter().filter(|(by, _)| *by == process).map(|(_, length)| *length).collect();
            let wanted = (1..=last).map(|turn| if turn % 7 == 0 { CHUNK } else { turn }).chain([0]);
            assert_eq!(of_process, wanted.collect::<Vec<_>>(), "{process}");
        }
    }

    /// A message that fits wakes no task, and one that does not fit is not written in part.
    #[tokio::test]
    async fn message_that_fits_is_written_at_once() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let writer = AgentWriter::open(Sender::from_owned_fd(writer).unwrap());
        writer.line.pipe.lock().await.writable().await.unwrap();
        let order = ToAgent::CloseInput { process: ProcessId(1), to: InputStream::Stdin };
        let one = frame(&order).unwrap();
        writer.place().await.unwrap().say(&order);
        assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), one.len() as u64, "nobody else had a turn");
        assert_eq!(writer.line.waiting.load(Ordering::SeqCst), 0);
        let mut said = 1;
        while writer.line.take_now(&one) {
            said += 1;
        }
        assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), said * one.len() as u64);
        writer.place().await.unwrap().say(&order);
        assert_eq!(writer.line.waiting.load(Ordering::SeqCst), 1);
        assert!(!writer.line.take_now(&one), "behind that one");
    }

    /// A resize of a terminal followed by a key.
    #[tokio::test]
    async fn nothing_overtakes_what_is_urgent() {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let writer = AgentWriter::open(Sender::from_owned_fd(writer).unwrap());
        writer.line.pipe.lock().await.writable().await.unwrap();
        let [first, second] = [1, 2].map(|id| ToAgent::CloseInput { process: ProcessId(id), to: InputStream::Stdin });
        writer.say_urgently(&first).unwrap();
        writer.place().await.unwrap().say(&second);
        let both = [frame(&first).unwrap(), frame(&second).unwrap()].concat();
        while rustix::io::ioctl_fionread(&reader).unwrap() < both.len() as u64 {
            tokio::task::yield_now().await;
        }
        let mut heard = vec![0; both.len()];
        rustix::io::read(&reader, &mut heard).unwrap();
        assert_eq!(heard, both);
    }
}
