//! The one writer: everything that waits is written in one transaction, and acknowledged after its commit.
//!
//! A durable commit costs the same for one operation as for two hundred, so whatever has queued up meanwhile shares the
//! next one. An operation says no by its answer, having written nothing; an *error* undoes the transaction, and then
//! each of its operations is tried alone, so that only the failing one fails. When the transaction itself cannot begin
//! or commit, all of its operations fail.

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::database::{Connector, PATIENCE};
use crate::driver::Connection;
use crate::error::Error;
use crate::ledger::{Failure, Ledger};

/// As many operations as one transaction takes. Each costs a statement or two, so this is some tens of milliseconds.
const BATCH: usize = 256;
/// As many as may wait; whoever comes then waits for a place.
const QUEUE: usize = 4 * BATCH;

/// Something that is written, and can be tried again when the transaction it was in was undone.
pub(crate) trait Operation: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// An answer that refuses must have written nothing.
    fn apply(&self, ledger: &mut Ledger<'_>) -> impl Future<Output = Result<Self::Answer, Error>> + Send;
}

/// The way to the writer.
#[derive(Debug, Clone)]
pub(crate) struct Queue(mpsc::Sender<Message>);

enum Message {
    Write(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

impl Queue {
    /// Starts the writer; it ends when the last way to it is gone, or when it is closed.
    pub(crate) fn start(connector: Connector) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(Writer { connector, connection: None }.run(receiver));
        Self(sender)
    }

    /// Returns when the operation is on disk, or when it is certain that it is not; except for [`Error::Unconfirmed`].
    /// An operation whose caller has stopped waiting is written all the same.
    pub(crate) async fn submit<O: Operation>(&self, operation: O) -> Result<O::Answer, Error> {
        let (reply, answer) = oneshot::channel();
        let job = Message::Write(Box::new(Waiting { operation, answer: None, reply }));
        match timeout(PATIENCE, self.0.send(job)).await {
            Ok(Ok(())) => answer.await.unwrap_or(Err(Error::Closed)),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) => Err(Error::Busy),
        }
    }

    /// Writes what waits, and then nothing any more.
    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.0.send(Message::Close(reply)).await.is_ok() {
            // An error means that the writer has ended in another way, which is what was wanted.
            let _ = closed.await;
        }
    }
}

/// An operation of whatever kind, with whoever waits for it.
trait Job: Send {
    fn apply<'j>(&'j mut self, ledger: &'j mut Ledger<'_>) -> BoxFuture<'j, Result<(), Error>>;
    fn answer(self: Box<Self>, outcome: Result<(), Error>);
}

struct Waiting<O: Operation> {
    operation: O,
    /// What the last try said. It is true only once it is committed.
    answer: Option<O::Answer>,
    reply: oneshot::Sender<Result<O::Answer, Error>>,
}

impl<O: Operation> Job for Waiting<O> {
    fn apply<'j>(&'j mut self, ledger: &'j mut Ledger<'_>) -> BoxFuture<'j, Result<(), Error>> {
        Box::pin(async move {
            self.answer = Some(self.operation.apply(ledger).await?);
            Ok(())
        })
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        let Self { answer, reply, .. } = *self;
        // Whoever asked may have stopped waiting.
        let _ = reply.send(outcome.and_then(|()| answer.ok_or(Error::Closed)));
    }
}

struct Writer {
    connector: Connector,
    connection: Option<Connection>,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(BATCH);
        let mut closed = Vec::new();
        while receiver.recv_many(&mut messages, BATCH).await > 0 {
            let jobs = sort(messages.drain(..), &mut closed);
            if let Err((mut jobs, error)) = self.settle(jobs).await {
                if matches!(error, Error::Busy | Error::Unreachable(_)) {
                    // Those who came while this waited have waited with it. They are taken before anybody is answered:
                    // whoever comes after an answer is tried anew.
                    let waiting = std::iter::from_fn(|| receiver.try_recv().ok());
                    jobs.extend(sort(waiting, &mut closed));
                }
                answer_all(jobs, &Err(error));
            }
            if !closed.is_empty() {
                receiver.close();
            }
        }
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
        for reply in closed {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
    }

    /// Writes and answers. What comes back with an error is not answered yet, and others would meet the same error.
    async fn settle(&mut self, mut jobs: Vec<Box<dyn Job>>) -> Result<(), (Vec<Box<dyn Job>>, Error)> {
        match self.write(&mut jobs).await {
            Ok(()) => answer_all(jobs, &Ok(())),
            Err(Failure::One(error)) if jobs.len() == 1 => answer_all(jobs, &Err(error)),
            Err(Failure::One(_)) => return self.settle_singly(jobs).await,
            Err(Failure::Whole(error)) => return Err((jobs, error)),
        }
        Ok(())
    }

    async fn settle_singly(&mut self, jobs: Vec<Box<dyn Job>>) -> Result<(), (Vec<Box<dyn Job>>, Error)> {
        let mut jobs = jobs.into_iter();
        while let Some(job) = jobs.next() {
            let mut alone = vec![job];
            match self.write(&mut alone).await {
                Ok(()) => answer_all(alone, &Ok(())),
                Err(Failure::One(error)) => answer_all(alone, &Err(error)),
                Err(Failure::Whole(error)) => return Err((alone.into_iter().chain(jobs).collect(), error)),
            }
        }
        Ok(())
    }

    /// One transaction. A connection that was lost since the last one is replaced once: nothing on it was committed.
    async fn write(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        if jobs.is_empty() {
            return Ok(());
        }
        if let Some(connection) = self.connection.take() {
            match self.write_on(connection, jobs).await {
                Err(Failure::Whole(Error::Unreachable(_)) | Failure::One(Error::Unreachable(_))) => {}
                outcome => return outcome,
            }
        }
        let connection = self.connector.connect().await.map_err(Failure::Whole)?;
        self.write_on(connection, jobs).await
    }

    /// A connection on which something failed is not used again: what state it is in is anybody's guess.
    async fn write_on(&mut self, mut connection: Connection, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let outcome = write_in_one_transaction(&mut connection, jobs).await;
        match outcome {
            Ok(()) => self.connection = Some(connection),
            // To its end, so that the next connection does not wait for a lock of this one.
            Err(_) => connection.close().await,
        }
        outcome
    }
}

async fn write_in_one_transaction(connection: &mut Connection, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
    let mut ledger = Ledger::begin(connection).await.map_err(Failure::Whole)?;
    for job in jobs {
        if let Err(error) = job.apply(&mut ledger).await {
            // When even this fails, closing the connection does it.
            let _ = ledger.rollback().await;
            return Err(Failure::One(error));
        }
    }
    ledger.commit().await
}

/// What is to be written, and apart from it who waits for the end.
fn sort(messages: impl Iterator<Item = Message>, closed: &mut Vec<oneshot::Sender<()>>) -> Vec<Box<dyn Job>> {
    let mut jobs = Vec::new();
    for message in messages {
        match message {
            Message::Write(job) => jobs.push(job),
            Message::Close(reply) => closed.push(reply),
        }
    }
    jobs
}

fn answer_all(jobs: Vec<Box<dyn Job>>, outcome: &Result<(), Error>) {
    for job in jobs {
        job.answer(outcome.clone());
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
