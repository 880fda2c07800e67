//! One transaction of the writer: appends entries to the audit chain and stores the new head.
//!
//! The head is read inside the transaction, because another process may have appended since, and is
//! written once, with the commit. One transaction at a time can append: SQLite has one write lock,
//! and PostgreSQL locks the row of `audit_head`. Appended entries stay in memory until the commit
//! and are then inserted in batches. After an error the whole transaction must be rolled back.

use crate::audit::entry::{Draft, Entry, Link};
use crate::audit::head::{HeadState, SELECT_HEAD, Signer, StoredHead};
use crate::db::driver::{Connection, Row};
use crate::db::statement::Statement;
use crate::db::transaction::{Transaction, Uncommitted};
use crate::error::Error;
use crate::timestamp::Timestamp;

/// Maximum number of entries per INSERT. Each INSERT has a power of two of rows, so that any number
/// of entries needs only five different statements, which stay prepared.
const MAX_INSERT_ROWS: usize = 16;

#[derive(Debug)]
pub(crate) struct Ledger<'c> {
    transaction: Transaction<'c>,
    signer: &'c Signer,
    found: Link,
    state: HeadState,
    head: Link,
    /// The time of the newest appended entry, or of the request for a signature. Without one, the
    /// commit does not sign.
    at: Option<Timestamp>,
    /// Appended, but not inserted yet.
    waiting: Vec<Entry>,
}

/// The effect of a commit on the chain.
pub(crate) struct Committed {
    /// The number of appended entries.
    pub(crate) appended: u64,
    /// Absent if no entry was appended.
    pub(crate) head: Option<StoredHead>,
}

/// Why a transaction was rolled back.
pub(crate) enum Failure {
    /// The transaction itself failed. Retrying its operations one by one would fail each time.
    Transaction(Error),
    /// One of its operations failed.
    Operation(Error),
}

impl<'c> Ledger<'c> {
    pub(crate) async fn begin(connection: &'c mut Connection, signer: &'c Signer) -> Result<Self, Error> {
        let query = Statement::new("read the head of the audit chain", SELECT_HEAD);
        let (transaction, row) = Transaction::begin(connection, query).await?;
        let stored = StoredHead::read(row.as_ref())?;
        let (state, head) = (signer.judge(&stored), stored.link);
        Ok(Self { transaction, signer, found: head, state, head, at: None, waiting: Vec::new() })
    }

    /// The end of the chain, including the entries that this transaction appended.
    pub(crate) fn head(&self) -> Link {
        self.head
    }

    /// Appends an entry and returns its number.
    pub(crate) fn append(&mut self, draft: Draft) -> i64 {
        self.at = Some(draft.event.at);
        let entry = draft.after(self.head);
        self.head = entry.link();
        self.waiting.push(entry);
        self.head.seq
    }

    /// Signs the head at the commit, even if this transaction appends nothing else.
    pub(crate) fn require_signature(&mut self, at: Timestamp) {
        self.at.get_or_insert(at);
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

    /// Inserts the appended entries. Call this before a query on the audit table: other operations
    /// of the same transaction may have appended entries that are still in memory.
    pub(crate) async fn write_entries(&mut self) -> Result<(), Error> {
        while let Some(insertion) = self.next_insertion() {
            self.transaction.execute(insertion).await?;
        }
        Ok(())
    }

    /// Stores the remaining entries and the signed head, and commits.
    pub(crate) async fn commit(mut self) -> Result<Committed, Failure> {
        self.account_for_found_head();
        let mut last = Vec::new();
        while let Some(insertion) = self.next_insertion() {
            if self.waiting.is_empty() {
                last.push(insertion);
            } else {
                self.transaction.execute(insertion).await.map_err(Failure::Operation)?;
            }
        }
        let entries = last.len();
        let appended = self.head.seq.abs_diff(self.found.seq);
        let mut head = None;
        if appended > 0 {
            let mac = self.signer.key.sign(self.head);
            let text = "UPDATE audit_head SET seq = $1, hash = $2, mac = $3";
            let update = Statement::new("store the end of the audit chain", text);
            last.push(update.bind(self.head.seq).bind(self.head.hash).bind(mac.clone()));
            head = Some(StoredHead { link: self.head, mac: Some(mac) });
        }
        self.transaction.commit(last).await.map(|()| Committed { appended, head }).map_err(|uncommitted| {
            match uncommitted {
                Uncommitted::Statement(number, error) if number < entries => Failure::Operation(error),
                Uncommitted::Statement(_, error) | Uncommitted::Commit(error) => Failure::Transaction(error),
            }
        })
    }

    /// Before a head without our signature is replaced by a signed one, appends an entry about its
    /// state.
    fn account_for_found_head(&mut self) {
        if let Some(at) = self.at
            && self.state != HeadState::Signed
        {
            self.append(self.state.draft(self.found.seq, at));
        }
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        self.transaction.rollback().await
    }

    /// Takes the waiting entries for the next INSERT.
    fn next_insertion(&mut self) -> Option<Statement> {
        let whole = self.waiting.len().min(MAX_INSERT_ROWS);
        let count = 1 << whole.checked_ilog2()?;
        let entries: Vec<Entry> = self.waiting.drain(..count).collect();
        Some(Entry::insertion(&entries))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::audit::entry::tests::{event, test_key};
    use crate::db::database::{Connector, Database};

    fn draft(number: i64) -> Draft {
        Draft { event: event(number), digest: None }
    }

    #[tokio::test]
    async fn batches_of_any_size_use_five_statements() {
        let directory = tempfile::tempdir().unwrap();
        let store =
            crate::Store::open(Database::Sqlite(directory.path().join("record.db")), Some(test_key())).await.unwrap();
        let mut connection = Connector::new(store.database()).unwrap().connect().await.unwrap();
        let mut signer = Signer::new(test_key());
        let mut texts = BTreeSet::new();
        for count in 0..=70 {
            let mut undone = Ledger::begin(&mut connection, &signer).await.unwrap();
            (0..count).for_each(|number| _ = undone.append(draft(number)));
            texts.extend(std::iter::from_fn(|| undone.next_insertion()).map(|insertion| insertion.text));
            undone.rollback().await.unwrap();
            let mut ledger = Ledger::begin(&mut connection, &signer).await.unwrap();
            (0..count).for_each(|number| _ = ledger.append(draft(number)));
            let committed = ledger.commit().await.ok().unwrap();
            committed.head.into_iter().for_each(|head| signer.committed(head));
        }
        assert_eq!(texts.len(), 5);
        let verification = store.verify(|_| {}).await.unwrap();
        assert!(verification.is_intact(), "{:?}", verification.findings);
        assert_eq!(verification.checked, (0..=70).sum::<u64>());
    }
}
