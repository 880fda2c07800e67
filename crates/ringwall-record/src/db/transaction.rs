//! The writer's transaction. SQLite's runs synchronously in the writer's thread.

use sqlx::{Connection as _, Postgres};

use crate::db::driver::{Connection, Row, query, rows_of_postgres, with_answer_timeout};
use crate::db::statement::Statement;
use crate::db::{sqlite, sqlite::StatementResult};
use crate::error::Error;

const BEGIN: &str = "begin a write transaction";

/// After an error the caller must roll back or close the connection: dropping SQLite's variant
/// leaves the transaction open.
#[derive(Debug)]
pub(crate) enum Transaction<'c> {
    Sqlite(&'c mut rusqlite::Connection),
    Postgres(sqlx::Transaction<'c, Postgres>),
}

/// Why a transaction was not committed.
#[derive(Debug)]
pub(crate) enum Uncommitted {
    /// The statement with this index failed; nothing was committed.
    Statement(usize, Error),
    Commit(Error),
}

impl<'c> Transaction<'c> {
    /// Begins, and reads one row with `head_query`. Write transactions of several processes run one
    /// after the other: SQLite takes its only write lock at once, because a transaction that starts
    /// with a read can fail with `SQLITE_BUSY` at its first write; PostgreSQL locks the row.
    pub(crate) async fn begin(
        connection: &'c mut Connection,
        head_query: Statement,
    ) -> Result<(Self, Option<Row>), Error> {
        match connection {
            Connection::Sqlite(connection) => {
                run(connection, &Statement::new(BEGIN, "BEGIN IMMEDIATE"))?;
                let answer = run(connection, &head_query)?;
                Ok((Transaction::Sqlite(connection), answer.rows.into_iter().next().map(Row::Rusqlite)))
            }
            Connection::Postgres(connection) => {
                let begun = with_answer_timeout(connection.begin())
                    .await
                    .map_err(|error| Error::from_database(BEGIN, error))?;
                let mut transaction = Transaction::Postgres(begun);
                let text = format!("{} FOR UPDATE", head_query.text);
                let row = transaction.row(Statement { text: text.into(), ..head_query }).await?;
                Ok((transaction, row))
            }
        }
    }

    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>, Error> {
        match self {
            Transaction::Sqlite(connection) => {
                run(connection, &statement).map(|answer| answer.rows.into_iter().map(Row::Rusqlite).collect())
            }
            Transaction::Postgres(transaction) => rows_of_postgres(&mut **transaction, statement).await,
        }
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>, Error> {
        Ok(self.rows(statement).await?.into_iter().next())
    }

    /// Returns the number of affected rows.
    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        match self {
            Transaction::Sqlite(connection) => run(connection, &statement).map(|answer| answer.affected),
            Transaction::Postgres(transaction) => {
                let purpose = statement.purpose;
                let done = with_answer_timeout(query(statement).execute(&mut **transaction)).await;
                done.map(|done| done.rows_affected()).map_err(|error| Error::from_database(purpose, error))
            }
        }
    }

    /// Executes these statements and commits.
    pub(crate) async fn commit(mut self, last: Vec<Statement>) -> Result<(), Uncommitted> {
        for (number, statement) in last.into_iter().enumerate() {
            self.execute(statement).await.map_err(|error| Uncommitted::Statement(number, error))?;
        }
        let committed = match self {
            Transaction::Sqlite(connection) => {
                let commit = Statement::new("commit", "COMMIT");
                sqlite::run(connection, &commit).map(drop).map_err(Error::from_commit)
            }
            Transaction::Postgres(transaction) => {
                with_answer_timeout(transaction.commit()).await.map_err(Error::from_commit)
            }
        };
        committed.map_err(Uncommitted::Commit)
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        let undo = Statement::new("roll back", "ROLLBACK");
        match self {
            Transaction::Sqlite(connection) => run(connection, &undo).map(drop),
            Transaction::Postgres(transaction) => with_answer_timeout(transaction.rollback())
                .await
                .map_err(|error| Error::from_database(undo.purpose, error)),
        }
    }
}

fn run(connection: &rusqlite::Connection, statement: &Statement) -> Result<StatementResult, Error> {
    sqlite::run(connection, statement).map_err(|error| Error::from_database(statement.purpose, error))
}
