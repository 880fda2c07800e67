//! The record itself: opened once, shared by everybody, closed at the end.
//!
//! Writes go to the one writer, reads to connections of their own that cannot write. Nothing here knows what is written
//! or read; each noun and verb has its own file and adds its methods there.

use std::sync::Arc;

use crate::audit::entry::Link;
use crate::audit::head::HeadKey;
use crate::db::database::{Connector, Database};
use crate::db::driver::Pool;
use crate::db::statement::Statement;
use crate::error::Error;
use crate::remembered::Remembered;
use crate::writer::writer::{Operation, Queue};

#[derive(Debug, Clone)]
pub struct Store {
    inside: Arc<Inside>,
}

#[derive(Debug)]
struct Inside {
    database: Database,
    readers: Pool,
    queue: Queue,
    key: Option<HeadKey>,
    remembered: Remembered,
}

impl Store {
    /// Opens the database, makes it when there is none, and brings its schema up to date. Needs a tokio runtime, on
    /// which is read then; the writer has a thread of its own. The key signs the audit chain's head; without
    /// it nothing can be written, and [`Store::verify`] does not check the head's signature.
    pub async fn open(database: Database, key: Option<HeadKey>) -> Result<Self, Error> {
        let connector = Connector::new(&database)?;
        connector.migrate().await?;
        let readers = connector.readers();
        let remembered = Remembered::beside(&database);
        let queue = Queue::start(connector, key.clone())?;
        let store = Self { inside: Arc::new(Inside { database, readers, queue, key, remembered }) };
        // The first read shows a damage that the schema alone does not.
        store.health().await?;
        Ok(store)
    }

    /// A cheap read: it answers when the database does.
    pub async fn health(&self) -> Result<(), Error> {
        self.audit_head().await.map(drop)
    }

    /// Where the audit chain ends. Kept elsewhere, it proves later that nothing before it was rewritten.
    pub async fn audit_head(&self) -> Result<Link, Error> {
        let question = Statement::new("read the end of the audit chain", "SELECT seq, hash FROM audit_head");
        Link::read(self.readers().row(question).await?.as_ref(), "audit_head")
    }

    /// Writes what waits and closes every connection. Whoever still has this store gets [`Error::Closed`].
    pub async fn close(&self) {
        // The writer last: only a connection that can write takes SQLite's log back into the file.
        self.inside.readers.close().await;
        self.inside.queue.close().await;
    }

    pub(crate) fn database(&self) -> &Database {
        &self.inside.database
    }

    pub(crate) fn key(&self) -> Option<&HeadKey> {
        self.inside.key.as_ref()
    }

    pub(crate) fn readers(&self) -> &Pool {
        &self.inside.readers
    }

    pub(crate) fn remembered(&self) -> &Remembered {
        &self.inside.remembered
    }

    /// The same for what may be remembered otherwise. In a task of its own: whoever asked may go away, and what they asked for
    /// is written and counts all the same.
    pub(crate) async fn submit_change<O: Operation>(&self, operation: O) -> Result<O::Answer, Error> {
        let store = self.clone();
        let changing = tokio::spawn(async move {
            let changed = store.submit(operation).await;
            // Whatever became of it: an answer that did not come may still be a change.
            store.remembered().change();
            changed
        });
        changing.await.unwrap_or(Err(Error::Closed))
    }

    pub(crate) fn submit<O: Operation>(
        &self,
        operation: O,
    ) -> impl Future<Output = Result<O::Answer, Error>> + Send + use<O> {
        self.inside.queue.submit(operation)
    }
}
