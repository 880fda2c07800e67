//! One transaction of the writer, with the end of the audit chain in its hand.
//!
//! The end is read inside of the transaction, because another process may have written since, and stored once before the
//! commit. Whoever holds the end holds the right to append: SQLite has one writer at a time, PostgreSQL locks the row.
//! Nothing here commits by itself, and whatever returns an error has to be undone as a whole.

use crate::audit::{Draft, Link};
use crate::driver::{Row, Transaction};
use crate::error::Error;
use crate::statement::Statement;

#[derive(Debug)]
pub(crate) struct Ledger<'c> {
    transaction: Transaction<'c>,
    found: Link,
    head: Link,
}

impl<'c> Ledger<'c> {
    pub(crate) async fn begin(mut transaction: Transaction<'c>) -> Result<Self, Error> {
        let text = format!("SELECT seq, hash FROM audit_head{}", transaction.for_update());
        let row = transaction.row(Statement::new("read the end of the audit chain", text)).await?;
        let head = Link::read(row.as_ref(), "audit_head")?;
        Ok(Self { transaction, found: head, head })
    }

    /// Where the chain ends, with what this transaction has appended.
    pub(crate) fn head(&self) -> Link {
        self.head
    }

    /// Appends an entry and returns its number.
    pub(crate) async fn append(&mut self, draft: Draft) -> Result<i64, Error> {
        let entry = draft.after(self.head);
        self.execute(entry.insertion()).await?;
        self.head = entry.link();
        Ok(self.head.seq)
    }

    /// The number that the next entry will have.
    pub(crate) fn next(&self) -> i64 {
        self.head.seq + 1
    }

    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        self.transaction.execute(statement).await
    }

    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>, Error> {
        self.transaction.rows(statement).await
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>, Error> {
        self.transaction.row(statement).await
    }

    /// Stores the new end of the chain, and hands the transaction back to be committed.
    pub(crate) async fn seal(mut self) -> Result<Transaction<'c>, Error> {
        if self.head != self.found {
            let statement =
                Statement::new("store the end of the audit chain", "UPDATE audit_head SET seq = $1, hash = $2");
            self.transaction.execute(statement.bind(self.head.seq).bind(self.head.hash)).await?;
        }
        Ok(self.transaction)
    }

    pub(crate) fn into_transaction(self) -> Transaction<'c> {
        self.transaction
    }
}
