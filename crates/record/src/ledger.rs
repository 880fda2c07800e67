//! One transaction of the writer, with the end of the audit chain in its hand.
//!
//! The end is read inside of the transaction, because another process may have written since, and stored once with the
//! commit. Whoever holds the end holds the right to append: SQLite has one writer at a time, PostgreSQL locks the row.
//! Entries need the database for nothing but to be kept, so they wait here and are written with the end. Nothing here
//! commits before it is told to, and whatever returns an error has to be undone as a whole.

use crate::at_once::Durability;
use crate::audit::{Draft, Entry, Link};
use crate::driver::{Connection, Row};
use crate::error::Error;
use crate::statement::Statement;
use crate::transaction::{Transaction, Uncommitted};

/// As many entries as one statement writes. Fewer are written by halves of it, halves of those and so on: every number of
/// entries then takes few statements, and there are few texts to keep prepared.
const AT_ONCE: usize = 16;

#[derive(Debug)]
pub(crate) struct Ledger<'c> {
    transaction: Transaction<'c>,
    found: Link,
    head: Link,
    /// Appended, and not yet in the database.
    waiting: Vec<Entry>,
}

/// Where the chain ends after a commit, and whether the commit has added to it. One that has not may have written nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Committed {
    pub(crate) head: Link,
    pub(crate) has_grown: bool,
}

/// Why a transaction was undone.
pub(crate) enum Failure {
    /// The transaction as a whole: to try its operations one by one would only fail more often.
    Whole(Error),
    /// One operation in it.
    One(Error),
}

impl<'c> Ledger<'c> {
    pub(crate) async fn begin(connection: &'c mut Connection, change: Option<Durability>) -> Result<Self, Error> {
        let question = Statement::new("read the end of the audit chain", "SELECT seq, hash FROM audit_head");
        let (transaction, row) = Transaction::begin(connection, change, question).await?;
        let head = Link::read(row.as_ref(), "audit_head")?;
        Ok(Self { transaction, found: head, head, waiting: Vec::new() })
    }

    /// Where the chain ends, with what this transaction has appended.
    pub(crate) fn head(&self) -> Link {
        self.head
    }

    /// Appends an entry and returns its number.
    pub(crate) fn append(&mut self, draft: Draft) -> i64 {
        let entry = draft.after(self.head);
        self.head = entry.link();
        self.waiting.push(entry);
        self.head.seq
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

    /// Whoever looks at the audit table itself calls this first: what others in the same transaction have appended is not
    /// there before.
    pub(crate) async fn write_entries(&mut self) -> Result<(), Error> {
        while let Some(insertion) = self.next_insertion() {
            self.transaction.execute(insertion).await?;
        }
        Ok(())
    }

    /// Stores the entries that are not yet, and the new end of the chain, and commits. Gives the end.
    pub(crate) async fn commit(mut self) -> Result<Committed, Failure> {
        let mut last = Vec::new();
        while let Some(insertion) = self.next_insertion() {
            if self.waiting.is_empty() {
                last.push(insertion);
            } else {
                self.transaction.execute(insertion).await.map_err(Failure::One)?;
            }
        }
        let entries = last.len();
        if self.head != self.found {
            let text = "UPDATE audit_head SET seq = $1, hash = $2";
            let update = Statement::new("store the end of the audit chain", text);
            last.push(update.bind(self.head.seq).bind(self.head.hash));
        }
        let committed = Committed { head: self.head, has_grown: self.head != self.found };
        self.transaction.commit(last).await.map(|()| committed).map_err(|uncommitted| match uncommitted {
            Uncommitted::Statement(number, error) if number < entries => Failure::One(error),
            Uncommitted::Statement(_, error) | Uncommitted::Commit(error) => Failure::Whole(error),
        })
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        self.transaction.rollback().await
    }

    /// Takes as many as go into one statement.
    fn next_insertion(&mut self) -> Option<Statement> {
        let whole = self.waiting.len().min(AT_ONCE);
        let count = 1 << whole.checked_ilog2()?;
        let entries: Vec<Entry> = self.waiting.drain(..count).collect();
        Some(Entry::insertion(&entries))
    }
}
