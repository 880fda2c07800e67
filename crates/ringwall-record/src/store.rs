//! Opens and closes the record.
//!
//! A [`Store`] is opened once and cloned. Writes go to the writer thread, reads to a pool of
//! read-only connections. The methods for each table are in the table's own module.

use std::sync::Arc;

use crate::audit::entry::Link;
use crate::audit::head::HeadKey;
use crate::db::database::{Connector, Database};
use crate::db::driver::Pool;
use crate::db::statement::Statement;
use crate::error::Error;
use crate::read_cache::ReadCache;
use crate::writer::queue::{Durability, Operation, Queue};

#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    readers: Pool,
    queue: Queue,
    key: Option<HeadKey>,
    read_cache: ReadCache,
}

impl Store {
    /// Opens the database, creates it if it is missing, and migrates its schema. Needs a tokio
    /// runtime, which runs the reads; the writer has a thread of its own. The key signs the audit
    /// chain's head; without it nothing can be written, and [`Store::verify`] does not check the
    /// head's signature.
    pub async fn open(database: Database, key: Option<HeadKey>) -> Result<Self, Error> {
        let connector = Connector::new(&database)?;
        connector.migrate().await?;
        let readers = connector.readers();
        let read_cache = ReadCache::new(&database);
        let queue = Queue::start(connector, key.clone())?;
        let store = Self { shared: Arc::new(Shared { database, readers, queue, key, read_cache }) };
        // The first read detects damage that the migration did not touch.
        store.health().await?;
        Ok(store)
    }

    /// Checks with a cheap read that the database answers.
    pub async fn health(&self) -> Result<(), Error> {
        self.audit_head().await.map(drop)
    }

    /// The end of the audit chain. Stored elsewhere, it proves later that nothing before it was
    /// rewritten ([`Store::verify_with`]).
    pub async fn audit_head(&self) -> Result<Link, Error> {
        let query = Statement::new("read the head of the audit chain", "SELECT seq, hash FROM audit_head");
        Link::read(self.readers().row(query).await?.as_ref(), "audit_head")
    }

    /// Writes the queued operations and closes all connections. Later calls, also of clones, fail
    /// with [`Error::Closed`].
    pub async fn close(&self) {
        // The writer last: SQLite checkpoints the WAL when the last connection closes, if it can
        // write.
        self.shared.readers.close().await;
        self.shared.queue.close().await;
    }

    pub(crate) fn database(&self) -> &Database {
        &self.shared.database
    }

    pub(crate) fn key(&self) -> Option<&HeadKey> {
        self.shared.key.as_ref()
    }

    pub(crate) fn readers(&self) -> &Pool {
        &self.shared.readers
    }

    pub(crate) fn read_cache(&self) -> &ReadCache {
        &self.shared.read_cache
    }

    /// Submits an operation on rows that [`ReadCache`] caches, and then invalidates the caches of
    /// all processes. Runs in a task of its own, so that the invalidation happens even if the
    /// caller drops the future.
    pub(crate) async fn submit_change<A: Send + 'static>(&self, operation: impl Operation<A>) -> Result<A, Error> {
        let store = self.clone();
        let changing = tokio::spawn(async move {
            let changed = store.submit(operation).await;
            // After an error too: an unconfirmed commit may have changed the row.
            store.read_cache().invalidate();
            changed
        });
        changing.await.unwrap_or(Err(Error::Closed))
    }

    /// Submits an operation; the answer comes when it is on disk.
    pub(crate) fn submit<A: Send + 'static, O: Operation<A>>(
        &self,
        operation: O,
    ) -> impl Future<Output = Result<A, Error>> + Send + use<A, O> {
        self.shared.queue.submit(Durability::Now, operation)
    }

    /// Submits an operation; the answer can come before it is on disk ([`Durability::Soon`]).
    pub(crate) fn submit_soon<A: Send + 'static, O: Operation<A>>(
        &self,
        operation: O,
    ) -> impl Future<Output = Result<A, Error>> + Send + use<A, O> {
        self.shared.queue.submit(Durability::Soon, operation)
    }
}
