//! An operation in one trip to the database: begun, written and committed by one text.
//!
//! It is possible where an operation is one statement that changes one row, and one entry: then nothing has to be read but
//! the end of the chain, which whoever wrote last still knows. The text itself makes sure of both. The entry takes the hash
//! before its own from the database, and finds none unless the end is where it was and exactly one row was changed; an entry
//! without that is refused, and nothing is committed. Whatever is unusual is then done again step by step.

use crate::audit::{Draft, Link};
use crate::driver::Connection;
use crate::error::Error;
use crate::statement::Statement;
use crate::transaction::{BEGIN, Transaction, Uncommitted, run_together};

/// When a commit has to be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before it is acknowledged.
    Now,
    /// A moment later. Until then it outlives this process, and not the machine.
    Soon,
}

impl Durability {
    /// What the next commits of a connection to SQLite do, from now on.
    pub(crate) fn statement(self) -> Statement {
        let text = match self {
            Durability::Now => "PRAGMA synchronous = FULL",
            Durability::Soon => "PRAGMA synchronous = NORMAL",
        };
        Statement::new("choose when commits are on disk", text)
    }
}

/// An operation as one statement, and its entry.
#[derive(Debug)]
pub(crate) struct AtOnce {
    pub(crate) statement: Statement,
    pub(crate) draft: Draft,
}

/// What became of a try.
#[derive(Debug)]
pub(crate) enum Tried {
    /// It is committed, and the chain ends here.
    Written(Link),
    /// Nothing is written: it has to be done step by step.
    Unusual,
    Failed(Error),
}

impl AtOnce {
    /// Tries it where the chain ends at `head`. A connection on which it failed is of no more use.
    pub(crate) async fn run(self, connection: &mut Connection, head: Link, before: Option<Durability>) -> Tried {
        let Connection::Sqlite(connection) = connection else { return Tried::Unusual };
        let entry = self.draft.after(head);
        let link = entry.link();
        let update = Statement::new("store the end of the audit chain", "UPDATE audit_head SET seq = $1, hash = $2");
        let mut statements: Vec<Statement> = before.map(Durability::statement).into_iter().collect();
        let begun = statements.len() + 1;
        statements.push(Statement::new(BEGIN, "BEGIN IMMEDIATE"));
        statements.extend([self.statement, entry.insertion_after_one(), update.bind(link.seq).bind(link.hash)]);
        match run_together(connection, statements).await {
            Ok(()) => Tried::Written(link),
            // Somebody else has the lock, and has had it for as long as anybody waits.
            Err(Uncommitted::Statement(number, error)) if number < begun => Tried::Failed(error),
            Err(Uncommitted::Statement(_, error)) => match Transaction::Sqlite(connection).rollback().await {
                Ok(()) => Tried::Unusual,
                Err(_) => Tried::Failed(error),
            },
            Err(Uncommitted::Commit(error)) => Tried::Failed(error),
        }
    }
}
