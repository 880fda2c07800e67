//! The one writer: everything that waits is written in one transaction, and acknowledged after its commit. It has a thread
//! of its own, so that nothing else stands still while it waits for a disk, and whoever submits wakes nobody but it.
//!
//! A durable commit costs the same for one operation as for two hundred, so whatever has queued up meanwhile shares the
//! next one. An operation says no by its answer, having written nothing; an *error* undoes the transaction, and then
//! each of its operations is tried alone, so that only the failing one fails. When the transaction itself cannot begin
//! or commit, all of its operations fail.
//!
//! SQLite's commits go to its log, and are on disk when that is forced there, which is done here and not by SQLite: what may be
//! on disk a moment later is not forced by itself, and nobody holds SQLite's lock meanwhile. A log that cannot be forced takes
//! nothing more.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::audit::head::{HeadKey, Signer};
use crate::db::database::{Connector, TIMEOUT};
use crate::db::driver::Connection;
use crate::db::sqlite;
use crate::db::statement::Statement;
use crate::error::Error;
use crate::writer::ledger::{Committed, Failure, Ledger};

/// As many operations as one transaction takes. Each costs a statement or two, so this is some tens of milliseconds.
const BATCH: usize = 256;
/// As many as may wait; whoever comes then waits for a place.
const QUEUE: usize = 4 * BATCH;
/// So many entries are put into the indices of lists together. Whoever asks for a list goes through those that are not there
/// yet, so they stay few.
const FILED: u64 = 128;
/// Whoever has written so many transactions is going to write more.
const SOME: u64 = 16;
/// How long what may be on disk later waits for somebody's commit to take it along.
const SOON: Duration = Duration::from_millis(10);

/// When a commit has to be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before it is acknowledged.
    Now,
    /// A moment later. Until then it outlives this process, and not the machine. Means nothing to PostgreSQL.
    Soon,
}

/// Something that is written, and can be tried again when the transaction it was in was undone.
pub(crate) trait Operation: Send + Sync + 'static {
    type Answer: Send + 'static;

    /// An answer that refuses must have written nothing.
    fn apply(&self, ledger: &mut Ledger<'_>) -> impl Future<Output = Result<Self::Answer, Error>> + Send;

    fn durability(&self) -> Durability {
        Durability::Now
    }
}

/// The way to the writer.
#[derive(Debug, Clone)]
pub(crate) struct Queue(mpsc::Sender<Message>);

enum Message {
    Write(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// Without its writer a server could record nothing any more, and would refuse everybody for ever: a panic of this one task
/// ends it.
struct Vital;

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Queue {
    /// Starts the writer in a thread of its own, where it may wait for a disk; it ends when the last way to it is gone, or
    /// when it is closed. Without a key it refuses every operation.
    pub(crate) fn start(connector: Connector, key: Option<HeadKey>) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let no_writer = |source| Error::NoWriter(Arc::new(source));
        let writer = Writer {
            connector,
            signer: key.map(Signer::new),
            connection: None,
            log: None,
            debt: Debt::None,
            failed: None,
            unfiled: FILED,
            written: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_writer)?;
        let thread = std::thread::Builder::new().name("record-writer".to_owned());
        let started = thread.spawn(move || {
            let _vital = Vital;
            runtime.block_on(writer.run(receiver));
        });
        started.map(|_| Self(sender)).map_err(no_writer)
    }

    /// Returns when the operation is on disk (or soon is, where that is enough for it), or when it is certain that it is not;
    /// except for [`Error::Unconfirmed`] and [`Error::LogFailed`].
    /// An operation whose caller has stopped waiting is written all the same. Where there is a place for it, it is on its way
    /// before anybody waits for it.
    pub(crate) fn submit<O: Operation>(
        &self,
        operation: O,
    ) -> impl Future<Output = Result<O::Answer, Error>> + Send + use<O> {
        let (reply, answer) = oneshot::channel();
        let job = Message::Write(Box::new(Waiting { operation, answer: None, reply }));
        let sent = self.0.try_send(job);
        let queue = self.0.clone();
        async move {
            match sent {
                Ok(()) => {}
                Err(TrySendError::Closed(_)) => return Err(Error::Closed),
                Err(TrySendError::Full(job)) => match timeout(TIMEOUT, queue.send(job)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Err(Error::Closed),
                    Err(_) => return Err(Error::Busy),
                },
            }
            answer.await.unwrap_or(Err(Error::Closed))
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
    fn durability(&self) -> Durability;
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

    fn durability(&self) -> Durability {
        self.operation.durability()
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        let Self { answer, reply, .. } = *self;
        // Whoever asked may have stopped waiting.
        let _ = reply.send(outcome.and_then(|()| answer.ok_or(Error::Closed)));
    }
}

struct Writer {
    connector: Connector,
    /// Absent where the record was opened to be read.
    signer: Option<Signer>,
    connection: Option<Connection>,
    /// SQLite's, open as long as the connection is: whoever opens it later is not told what failed before.
    log: Option<File>,
    debt: Debt,
    /// Why nothing is written any more. Something could not be forced to disk, and the kernel says so once: to force it again
    /// would prove nothing, and what comes behind it in the log could not be found after a power cut. Whoever starts anew
    /// brings the log into the database's own file first.
    failed: Option<Error>,
    /// How many entries are not in the indices of lists yet.
    unfiled: u64,
    /// How many transactions were committed.
    written: u64,
}

/// Whether something is committed that is not on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Debt {
    None,
    Owed,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(BATCH);
        let mut closed = Vec::new();
        while self.next(&mut receiver, &mut messages).await > 0 {
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
            // Nobody waits for it: those whose entries these are have been answered.
            if self.unfiled >= FILED {
                self.file().await;
            }
            if self.written == SOME {
                self.lengthen_log();
            }
            if !closed.is_empty() {
                receiver.close();
            }
        }
        let _ = self.pay();
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
        for reply in closed {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
    }

    /// What waits, or comes. While nothing comes, what is owed is paid.
    async fn next(&mut self, receiver: &mut mpsc::Receiver<Message>, messages: &mut Vec<Message>) -> usize {
        if self.debt == Debt::Owed {
            match timeout(SOON, receiver.recv_many(messages, BATCH)).await {
                Ok(count) => return count,
                // Whoever writes next is told.
                Err(_) => drop(self.pay()),
            }
        }
        receiver.recv_many(messages, BATCH).await
    }

    /// Has everything on disk that was committed before.
    fn pay(&mut self) -> Result<(), Error> {
        let (Debt::Owed, Some(path)) = (self.debt, self.connector.log()) else { return Ok(()) };
        match force(&mut self.log, &path) {
            Ok(()) => {
                self.debt = Debt::None;
                Ok(())
            }
            Err(source) => Err(self.failed.insert(Error::LogFailed(Arc::new(source))).clone()),
        }
    }

    /// Puts what was written lately into the indices of lists. What fails is done with the next: lists are right either way.
    async fn file(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let Some(mut connection) = self.connection.take() else { return };
        let Some(signer) = &self.signer else { return };
        if file_all(&mut connection, signer).await.is_ok() {
            (self.connection, self.unfiled) = (Some(connection), 0);
        } else {
            connection.close().await;
        }
    }

    /// A log that stays short only makes the next commits slower.
    fn lengthen_log(&mut self) {
        if let (Some(Connection::Sqlite(connection)), Some(log)) = (&mut self.connection, self.connector.log()) {
            let _ = sqlite::lengthen(connection, &log);
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
        if let Some(error) = &self.failed {
            return Err(Failure::Whole(error.clone()));
        }
        if self.signer.is_none() {
            return Err(Failure::Whole(Error::NoKey));
        }
        if let Some(connection) = self.connection.take() {
            match self.write_on(connection, jobs).await {
                Err(Failure::Whole(Error::Unreachable(_)) | Failure::One(Error::Unreachable(_))) => {}
                outcome => return outcome,
            }
        }
        let connection = self.connector.connect().await.map_err(Failure::Whole)?;
        // Where there is none yet, nothing in it can have failed.
        self.log = self.connector.log().and_then(|path| File::open(path).ok());
        self.write_on(connection, jobs).await
    }

    /// A connection on which something failed is not used again: what state it is in is anybody's guess.
    async fn write_on(&mut self, mut connection: Connection, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let changes = |connection: &Connection| match connection {
            Connection::Sqlite(connection) => connection.total_changes(),
            // There every commit is on disk.
            Connection::Postgres(_) => 0,
        };
        let before = changes(&connection);
        let Some(signer) = &mut self.signer else { return Err(Failure::Whole(Error::NoKey)) };
        match write_in_one_transaction(&mut connection, jobs, signer).await {
            Ok(Committed { grown, head }) => {
                head.into_iter().for_each(|head| signer.committed(head));
                if changes(&connection) != before {
                    self.debt = Debt::Owed;
                }
                self.connection = Some(connection);
                self.unfiled = self.unfiled.saturating_add(grown);
                self.written = self.written.saturating_add(1);
                match jobs.iter().any(|job| job.durability() == Durability::Now) {
                    true => self.pay().map_err(Failure::Whole),
                    false => Ok(()),
                }
            }
            Err(failure) => {
                // To its end, so that the next connection does not wait for a lock of this one.
                connection.close().await;
                Err(failure)
            }
        }
    }
}

async fn write_in_one_transaction(
    connection: &mut Connection,
    jobs: &mut [Box<dyn Job>],
    signer: &Signer,
) -> Result<Committed, Failure> {
    let mut ledger = Ledger::begin(connection, signer).await.map_err(Failure::Whole)?;
    for job in jobs {
        if let Err(error) = job.apply(&mut ledger).await {
            // When even this fails, closing the connection does it.
            let _ = ledger.rollback().await;
            return Err(Failure::One(error));
        }
    }
    ledger.commit().await
}

fn force(log: &mut Option<File>, path: &Path) -> io::Result<()> {
    let open = match log.take() {
        Some(open) => open,
        None => File::open(path)?,
    };
    log.insert(open).sync_data()
}

async fn file_all(connection: &mut Connection, signer: &Signer) -> Result<(), Failure> {
    let mut ledger = Ledger::begin(connection, signer).await.map_err(Failure::Whole)?;
    for text in [
        "UPDATE sandbox_execs SET filed = 1 WHERE filed = 0 AND ended_at IS NOT NULL",
        "UPDATE audit SET filed = 1 WHERE seq > (SELECT filed_through FROM audit_head)",
        "UPDATE audit_head SET filed_through = seq",
    ] {
        ledger.execute(Statement::new("file what was written lately", text)).await.map_err(Failure::Whole)?;
    }
    ledger.commit().await.map(drop)
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
