//! The writer's transaction. SQLite's is done here and now, in the writer's thread; PostgreSQL's in trips to its server.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres};

use crate::db::driver::{Connection, Row, bounded, for_postgres, rows_of_postgres};
use crate::db::statement::Statement;
use crate::db::{sqlite, sqlite::Answer};
use crate::error::Error;

const BEGIN: &str = "begin to write";

/// Undone when it is rolled back, or when its connection is closed: whoever gets an error does one of the two.
#[derive(Debug)]
pub(crate) enum Transaction<'c> {
    Sqlite(&'c mut rusqlite::Connection),
    Postgres(sqlx::Transaction<'c, Postgres>),
}

/// Why a transaction was not committed.
#[derive(Debug)]
pub(crate) enum Uncommitted {
    /// The statement with this number failed, and nothing is committed.
    Statement(usize, Error),
    Commit(Error),
}

impl<'c> Transaction<'c> {
    /// Begins, and reads the one row that writers take turns on. SQLite takes its one lock for writing at once: a transaction
    /// that first reads and then wants to write could be refused in its middle.
    pub(crate) async fn begin(connection: &'c mut Connection, turn: Statement) -> Result<(Self, Option<Row>), Error> {
        match connection {
            Connection::Sqlite(connection) => {
                run(connection, &Statement::new(BEGIN, "BEGIN IMMEDIATE"))?;
                let answer = run(connection, &turn)?;
                Ok((Transaction::Sqlite(connection), answer.rows.into_iter().next().map(Row::Held)))
            }
            Connection::Postgres(connection) => {
                let begun = bounded(connection.begin()).await.map_err(|error| Error::from_database(BEGIN, error))?;
                let mut transaction = Transaction::Postgres(begun);
                let text = format!("{} FOR UPDATE", turn.text);
                let row = transaction.row(Statement { text: text.into(), ..turn }).await?;
                Ok((transaction, row))
            }
        }
    }

    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>, Error> {
        match self {
            Transaction::Sqlite(connection) => {
                run(connection, &statement).map(|answer| answer.rows.into_iter().map(Row::Held).collect())
            }
            Transaction::Postgres(transaction) => rows_of_postgres(transaction, statement).await,
        }
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>, Error> {
        Ok(self.rows(statement).await?.into_iter().next())
    }

    /// How many rows were affected.
    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        match self {
            Transaction::Sqlite(connection) => run(connection, &statement).map(|answer| answer.affected),
            Transaction::Postgres(transaction) => execute_on_postgres(transaction, statement).await,
        }
    }

    /// Commits, after these statements.
    pub(crate) async fn commit(mut self, last: Vec<Statement>) -> Result<(), Uncommitted> {
        for (number, statement) in last.into_iter().enumerate() {
            self.execute(statement).await.map_err(|error| Uncommitted::Statement(number, error))?;
        }
        let committed = match self {
            Transaction::Sqlite(connection) => {
                let commit = Statement::new("commit", "COMMIT");
                sqlite::run(connection, &commit).map(drop).map_err(Error::from_commit)
            }
            Transaction::Postgres(transaction) => bounded(transaction.commit()).await.map_err(Error::from_commit),
        };
        committed.map_err(Uncommitted::Commit)
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        let undo = Statement::new("undo what was not committed", "ROLLBACK");
        match self {
            Transaction::Sqlite(connection) => run(connection, &undo).map(drop),
            Transaction::Postgres(transaction) => {
                bounded(transaction.rollback()).await.map_err(|error| Error::from_database(undo.purpose, error))
            }
        }
    }
}

fn run(connection: &rusqlite::Connection, statement: &Statement) -> Result<Answer, Error> {
    sqlite::run(connection, statement).map_err(|error| Error::from_database(statement.purpose, error))
}

async fn execute_on_postgres(connection: &mut PgConnection, statement: Statement) -> Result<u64, Error> {
    let purpose = statement.purpose;
    let query = sqlx::query_with(AssertSqlSafe(statement.text), for_postgres(statement.values)?);
    let done = bounded(query.execute(connection)).await.map_err(|error| Error::from_database(purpose, error))?;
    Ok(done.rows_affected())
}
