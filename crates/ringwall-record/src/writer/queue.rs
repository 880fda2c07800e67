//! The writer thread and its queue.
//!
//! A durable commit costs the same for one operation as for 200, so all queued operations share the
//! next transaction. An operation rejects a request by its answer, without having written anything.
//! An error rolls the transaction back; then each operation is retried alone, so that only the
//! failing one fails. If the transaction itself cannot begin or commit, all its operations fail.
//!
//! SQLite commits to its WAL with `synchronous=NORMAL`, and the writer syncs the WAL itself:
//! SQLite's write lock is free meanwhile, and commits with [`Durability::Soon`] share a later sync.
//! After a failed sync the writer rejects every operation.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
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

/// Maximum number of operations per transaction. Each takes one or two statements, so a full
/// transaction takes some tens of milliseconds.
const MAX_BATCH: usize = 256;
/// Capacity of the queue. When it is full, callers wait for up to [`TIMEOUT`].
const QUEUE_CAPACITY: usize = 4 * MAX_BATCH;
/// Entries are added to the list indexes (`filed = 1`) in batches of this size. List queries scan
/// the entries that are not indexed yet, so there must be few.
const INDEX_BATCH: u64 = 128;
/// The WAL is extended after this many transactions: a process that wrote so many will write more.
const EXTEND_WAL_AFTER: u64 = 16;
/// The WAL is synced for [`Durability::Soon`] when no operation arrived for this long.
const SYNC_DELAY: Duration = Duration::from_millis(10);

/// When a commit has to be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before it is acknowledged.
    Now,
    /// With the next sync: that of a `Now` commit, or after [`SYNC_DELAY`] without operations.
    /// Until then the commit survives the end of this process, but not a power cut. PostgreSQL
    /// treats it as `Now`.
    Soon,
}

/// A write. It is called again if its transaction was rolled back because another operation failed.
/// If its answer rejects the request, it must have written nothing.
pub(crate) trait Operation<A>: AsyncFn(&mut Ledger<'_>) -> Result<A, Error> + Send + 'static {}

impl<A, F: AsyncFn(&mut Ledger<'_>) -> Result<A, Error> + Send + 'static> Operation<A> for F {}

/// Sends operations to the writer thread.
#[derive(Debug, Clone)]
pub(crate) struct Queue(mpsc::Sender<Message>);

enum Message {
    Write(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// Aborts the process if the writer thread panics. Without a writer the server would reject every
/// request until it is restarted.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

impl Queue {
    /// Starts the writer thread. It ends after [`Queue::close`], or when all clones of the queue
    /// are dropped. Without a key it rejects every operation.
    pub(crate) fn start(connector: Connector, key: Option<HeadKey>) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let no_writer = |source| Error::NoWriter(Arc::new(source));
        let writer = Writer {
            connector,
            signer: key.map(Signer::new),
            connection: None,
            wal: None,
            sync_state: SyncState::Synced,
            failed: None,
            unindexed: INDEX_BATCH,
            written: 0,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_writer)?;
        let thread = std::thread::Builder::new().name("record-writer".to_owned());
        let started = thread.spawn(move || {
            let _vital = AbortOnPanic;
            runtime.block_on(writer.run(receiver));
        });
        started.map(|_| Self(sender)).map_err(no_writer)
    }

    /// Queues an operation and returns its answer after the commit, which is on disk unless the
    /// operation has [`Durability::Soon`]. An error means that nothing was written; only after
    /// [`Error::Unconfirmed`] and [`Error::LogFailed`] this is unknown.
    ///
    /// The operation is queued before the future is polled, unless the queue is full. Dropping the
    /// future does not cancel a queued operation.
    pub(crate) fn submit<A: Send + 'static, O: Operation<A>>(
        &self,
        durability: Durability,
        operation: O,
    ) -> impl Future<Output = Result<A, Error>> + Send + use<A, O> {
        let (reply, answer) = oneshot::channel();
        let job = Message::Write(Box::new(QueuedOperation { operation, durability, answer: None, reply }));
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

    /// Writes the queued operations and ends the writer. Later operations fail with
    /// [`Error::Closed`].
    pub(crate) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.0.send(Message::Close(reply)).await.is_ok() {
            // An error means that the writer has ended already.
            let _ = closed.await;
        }
    }
}

/// An operation of any type, with the channel for its answer.
trait Job: Send {
    fn apply<'j>(&'j mut self, ledger: &'j mut Ledger<'_>) -> LocalBoxFuture<'j, Result<(), Error>>;
    fn durability(&self) -> Durability;
    fn answer(self: Box<Self>, outcome: Result<(), Error>);
}

struct QueuedOperation<A, O> {
    operation: O,
    durability: Durability,
    /// The answer of the last attempt. Valid only after the commit.
    answer: Option<A>,
    reply: oneshot::Sender<Result<A, Error>>,
}

impl<A: Send, O: Operation<A>> Job for QueuedOperation<A, O> {
    fn apply<'j>(&'j mut self, ledger: &'j mut Ledger<'_>) -> LocalBoxFuture<'j, Result<(), Error>> {
        Box::pin(async move {
            self.answer = Some((self.operation)(ledger).await?);
            Ok(())
        })
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        let Self { answer, reply, .. } = *self;
        // The caller may have stopped waiting.
        let _ = reply.send(outcome.and_then(|()| answer.ok_or(Error::Closed)));
    }
}

struct Writer {
    connector: Connector,
    /// Absent if the record was opened without a key.
    signer: Option<Signer>,
    connection: Option<Connection>,
    /// SQLite's WAL, open as long as the connection: a descriptor opened later would not report a
    /// write that failed before.
    wal: Option<File>,
    sync_state: SyncState,
    /// The error of a failed sync of the WAL; the writer then rejects every operation. The kernel
    /// reports a failed write once, so a later successful sync would prove nothing, and after a
    /// power cut SQLite ignores all WAL frames behind a lost one. A restart first checkpoints the
    /// WAL into the database file.
    failed: Option<Error>,
    /// Entries that are not in the list indexes yet.
    unindexed: u64,
    /// Committed transactions.
    written: u64,
}

/// `Pending` while a commit is not synced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncState {
    Synced,
    Pending,
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(MAX_BATCH);
        let mut closed = Vec::new();
        while self.next(&mut receiver, &mut messages).await > 0 {
            let jobs = separate(messages.drain(..), &mut closed);
            if let Err((mut jobs, error)) = self.write_and_answer(jobs).await {
                if matches!(error, Error::Busy | Error::Unreachable(_)) {
                    // Operations that arrived during this wait fail too, instead of waiting one
                    // after the other. They are taken before the first answer is sent: an operation
                    // submitted after an answer is tried again.
                    let waiting = std::iter::from_fn(|| receiver.try_recv().ok());
                    jobs.extend(separate(waiting, &mut closed));
                }
                answer_all(jobs, &Err(error));
            }
            // After the answers, so that no caller waits for it.
            if self.unindexed >= INDEX_BATCH {
                self.update_list_indexes().await;
            }
            if self.written == EXTEND_WAL_AFTER {
                self.extend_wal();
            }
            if !closed.is_empty() {
                receiver.close();
            }
        }
        let _ = self.sync();
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
        for reply in closed {
            // The caller may have stopped waiting.
            let _ = reply.send(());
        }
    }

    /// Waits for messages and returns their number. If a commit is not synced yet, syncs it after
    /// [`SYNC_DELAY`] without messages.
    async fn next(&mut self, receiver: &mut mpsc::Receiver<Message>, messages: &mut Vec<Message>) -> usize {
        if self.sync_state == SyncState::Pending {
            match timeout(SYNC_DELAY, receiver.recv_many(messages, MAX_BATCH)).await {
                Ok(count) => return count,
                // The error is kept in `failed`, and the next operation gets it.
                Err(_) => drop(self.sync()),
            }
        }
        receiver.recv_many(messages, MAX_BATCH).await
    }

    /// Syncs all earlier commits to disk.
    fn sync(&mut self) -> Result<(), Error> {
        let (SyncState::Pending, Some(path)) = (self.sync_state, self.connector.wal_path()) else { return Ok(()) };
        match sync_wal(&mut self.wal, &path) {
            Ok(()) => {
                self.sync_state = SyncState::Synced;
                Ok(())
            }
            Err(source) => Err(self.failed.insert(Error::LogFailed(Arc::new(source))).clone()),
        }
    }

    /// Adds new entries and ended execs to the list indexes. After an error the next batch includes
    /// them; list queries are correct in both cases.
    async fn update_list_indexes(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let Some(mut connection) = self.connection.take() else { return };
        let Some(signer) = &self.signer else { return };
        if index_new_rows(&mut connection, signer).await.is_ok() {
            (self.connection, self.unindexed) = (Some(connection), 0);
        } else {
            connection.close().await;
        }
    }

    /// Ignores errors: without it the next commits are only slower.
    fn extend_wal(&mut self) {
        if let (Some(Connection::Sqlite(connection)), Some(wal)) = (&mut self.connection, self.connector.wal_path()) {
            let _ = sqlite::extend_wal(connection, &wal);
        }
    }

    /// Writes the operations and answers them. On an error that other operations would meet too,
    /// returns those that are not answered yet.
    async fn write_and_answer(&mut self, mut jobs: Vec<Box<dyn Job>>) -> Result<(), (Vec<Box<dyn Job>>, Error)> {
        match self.write(&mut jobs).await {
            Ok(()) => answer_all(jobs, &Ok(())),
            Err(Failure::Operation(error)) if jobs.len() == 1 => answer_all(jobs, &Err(error)),
            Err(Failure::Operation(_)) => return self.write_one_by_one(jobs).await,
            Err(Failure::Transaction(error)) => return Err((jobs, error)),
        }
        Ok(())
    }

    async fn write_one_by_one(&mut self, jobs: Vec<Box<dyn Job>>) -> Result<(), (Vec<Box<dyn Job>>, Error)> {
        let mut jobs = jobs.into_iter();
        while let Some(job) = jobs.next() {
            let mut alone = vec![job];
            match self.write(&mut alone).await {
                Ok(()) => answer_all(alone, &Ok(())),
                Err(Failure::Operation(error)) => answer_all(alone, &Err(error)),
                Err(Failure::Transaction(error)) => return Err((alone.into_iter().chain(jobs).collect(), error)),
            }
        }
        Ok(())
    }

    /// Writes one transaction. If the connection was lost before the commit, retries once on a new
    /// one: nothing was committed on the old one.
    async fn write(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        if jobs.is_empty() {
            return Ok(());
        }
        if let Some(error) = &self.failed {
            return Err(Failure::Transaction(error.clone()));
        }
        if self.signer.is_none() {
            return Err(Failure::Transaction(Error::NoKey));
        }
        if let Some(connection) = self.connection.take() {
            match self.write_on(connection, jobs).await {
                Err(Failure::Transaction(Error::Unreachable(_)) | Failure::Operation(Error::Unreachable(_))) => {}
                outcome => return outcome,
            }
        }
        let connection = self.connector.connect().await.map_err(Failure::Transaction)?;
        // A WAL that does not exist yet is opened at the first sync: no write to it can have
        // failed.
        self.wal = self.connector.wal_path().and_then(|path| File::open(path).ok());
        self.write_on(connection, jobs).await
    }

    /// Closes the connection after a failure, because its state is unknown.
    async fn write_on(&mut self, mut connection: Connection, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let changes = |connection: &Connection| match connection {
            Connection::Sqlite(connection) => connection.total_changes(),
            // PostgreSQL syncs every commit itself.
            Connection::Postgres(_) => 0,
        };
        let before = changes(&connection);
        let Some(signer) = &mut self.signer else { return Err(Failure::Transaction(Error::NoKey)) };
        match write_in_one_transaction(&mut connection, jobs, signer).await {
            Ok(Committed { appended, head }) => {
                head.into_iter().for_each(|head| signer.committed(head));
                if changes(&connection) != before {
                    self.sync_state = SyncState::Pending;
                }
                self.connection = Some(connection);
                self.unindexed = self.unindexed.saturating_add(appended);
                self.written = self.written.saturating_add(1);
                match jobs.iter().any(|job| job.durability() == Durability::Now) {
                    true => self.sync().map_err(Failure::Transaction),
                    false => Ok(()),
                }
            }
            Err(failure) => {
                // Awaited, so that the next connection does not have to wait for a lock of this
                // one.
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
    let mut ledger = Ledger::begin(connection, signer).await.map_err(Failure::Transaction)?;
    for job in jobs {
        if let Err(error) = job.apply(&mut ledger).await {
            // If this fails too, closing the connection rolls back.
            let _ = ledger.rollback().await;
            return Err(Failure::Operation(error));
        }
    }
    ledger.commit().await
}

fn sync_wal(wal: &mut Option<File>, path: &Path) -> io::Result<()> {
    let open = match wal.take() {
        Some(open) => open,
        None => File::open(path)?,
    };
    wal.insert(open).sync_data()
}

async fn index_new_rows(connection: &mut Connection, signer: &Signer) -> Result<(), Failure> {
    let mut ledger = Ledger::begin(connection, signer).await.map_err(Failure::Transaction)?;
    for text in [
        "UPDATE sandbox_execs SET filed = 1 WHERE filed = 0 AND ended_at IS NOT NULL",
        "UPDATE audit SET filed = 1 WHERE seq > (SELECT filed_through FROM audit_head)",
        "UPDATE audit_head SET filed_through = seq",
    ] {
        ledger.execute(Statement::new("add new rows to the list indexes", text)).await.map_err(Failure::Transaction)?;
    }
    ledger.commit().await.map(drop)
}

/// Separates operations from requests to close.
fn separate(messages: impl Iterator<Item = Message>, closed: &mut Vec<oneshot::Sender<()>>) -> Vec<Box<dyn Job>> {
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
#[path = "queue_tests.rs"]
mod tests;
