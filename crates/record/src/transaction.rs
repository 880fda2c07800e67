//! The writer's transaction, in as few trips to the database as it can be done in.
//!
//! SQLite works in a thread of the driver's: to wake it and to be woken costs more than most statements do. So the text
//! that begins a transaction also asks its first question, and the text that commits also writes what was left to the
//! end. The driver takes several statements in one text, keeps them prepared under that text, answers one after the
//! other and stops at the first that fails. PostgreSQL prepares one statement at a time, and gets them one by one.

use std::borrow::Cow;

use futures::StreamExt as _;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _, PgConnection, Postgres, SqliteConnection};

use crate::at_once::Durability;
use crate::driver::{Connection, Row, bounded, for_postgres, for_sqlite, rows_of_postgres};
use crate::error::Error;
use crate::statement::Statement;

pub(crate) const BEGIN: &str = "begin to write";

/// Undone when it is rolled back, or when its connection is closed: whoever gets an error does one of the two.
#[derive(Debug)]
pub(crate) enum Transaction<'c> {
    Sqlite(&'c mut SqliteConnection),
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
    /// Begins, after a change of when its commit is on disk if there is one, and reads the one row that writers take turns on. SQLite takes its one lock for writing at once: a
    /// transaction that first reads and then wants to write could be refused in its middle.
    pub(crate) async fn begin(
        connection: &'c mut Connection,
        change: Option<Durability>,
        turn: Statement,
    ) -> Result<(Self, Option<Row>), Error> {
        match connection {
            Connection::Sqlite(connection) => {
                let begin = [Statement::new(BEGIN, "BEGIN IMMEDIATE"), turn];
                let text = Text::of(change.map(Durability::statement).into_iter().chain(begin).collect())?;
                let answer = text.run(connection).await;
                let answer = answer.map_err(|stopped| Error::from_database(BEGIN, stopped.error))?;
                Ok((Transaction::Sqlite(connection), answer.rows.into_iter().next()))
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
            Transaction::Sqlite(connection) => run_alone(connection, statement).await.map(|answer| answer.rows),
            Transaction::Postgres(transaction) => rows_of_postgres(transaction, statement).await,
        }
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>, Error> {
        Ok(self.rows(statement).await?.into_iter().next())
    }

    /// How many rows were affected.
    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        match self {
            Transaction::Sqlite(connection) => run_alone(connection, statement).await.map(|answer| answer.affected),
            Transaction::Postgres(transaction) => execute_on_postgres(transaction, statement).await,
        }
    }

    /// Commits, after these statements.
    pub(crate) async fn commit(self, last: Vec<Statement>) -> Result<(), Uncommitted> {
        match self {
            Transaction::Sqlite(connection) => run_together(connection, last).await,
            Transaction::Postgres(mut transaction) => {
                for (number, statement) in last.into_iter().enumerate() {
                    let outcome = execute_on_postgres(&mut transaction, statement).await;
                    outcome.map_err(|error| Uncommitted::Statement(number, error))?;
                }
                let committed = bounded(transaction.commit()).await;
                committed.map_err(|error| Uncommitted::Commit(Error::from_commit(error)))
            }
        }
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        let undone = match self {
            Transaction::Sqlite(connection) => sqlx::query("ROLLBACK").execute(connection).await.map(drop),
            Transaction::Postgres(transaction) => bounded(transaction.rollback()).await,
        };
        undone.map_err(|error| Error::from_database("undo what was not committed", error))
    }
}

async fn execute_on_postgres(connection: &mut PgConnection, statement: Statement) -> Result<u64, Error> {
    let purpose = statement.purpose;
    let query = sqlx::query_with(AssertSqlSafe(statement.text), for_postgres(statement.values)?);
    let done = bounded(query.execute(connection)).await.map_err(|error| Error::from_database(purpose, error))?;
    Ok(done.rows_affected())
}

async fn run_alone(connection: &mut SqliteConnection, statement: Statement) -> Result<Answer, Error> {
    let purpose = statement.purpose;
    let answer = Text::of(vec![statement])?.run(connection).await;
    answer.map_err(|stopped| Error::from_database(purpose, stopped.error))
}

/// Runs all of them and commits, in one trip.
pub(crate) async fn run_together(
    connection: &mut SqliteConnection,
    mut last: Vec<Statement>,
) -> Result<(), Uncommitted> {
    let purposes: Vec<&'static str> = last.iter().map(|statement| statement.purpose).collect();
    last.push(Statement::new("commit", "COMMIT"));
    let text = Text::of(last).map_err(|error| Uncommitted::Statement(0, error))?;
    match text.run(connection).await {
        Ok(_) => Ok(()),
        Err(Stopped { done: Some(done), error }) if let Some(purpose) = purposes.get(done) => {
            Err(Uncommitted::Statement(done, Error::from_database(purpose, error)))
        }
        // The commit itself, or an answer that never came: then whether it happened is not known.
        Err(Stopped { error, .. }) => Err(Uncommitted::Commit(Error::from_commit(error))),
    }
}

/// Statements for one trip.
struct Text {
    text: Cow<'static, str>,
    arguments: SqliteArguments,
    count: usize,
}

struct Answer {
    rows: Vec<Row>,
    /// How many rows all of the statements affected.
    affected: u64,
}

/// What ended a text before its last statement was done.
struct Stopped {
    /// How many statements were done before the one that failed. Nothing when the driver's thread fell silent.
    done: Option<usize>,
    error: sqlx::Error,
}

impl Text {
    fn of(statements: Vec<Statement>) -> Result<Self, Error> {
        let count = statements.len();
        let Statement { text, values, .. } = Statement::join(statements);
        Ok(Self { text, arguments: for_sqlite(values)?, count })
    }

    /// Counts the statements that were done: a thread that dies says nothing, and silence is not success. What comes after
    /// the last one, the end of the answer, is worth no further wait.
    async fn run(self, connection: &mut SqliteConnection) -> Result<Answer, Stopped> {
        let mut answers = connection.fetch_many(sqlx::query_with(AssertSqlSafe(self.text), self.arguments));
        let (mut done, mut answer) = (0, Answer { rows: Vec::new(), affected: 0 });
        while done < self.count {
            match answers.next().await {
                Some(Ok(Either::Left(result))) => {
                    done += 1;
                    answer.affected += result.rows_affected();
                }
                Some(Ok(Either::Right(row))) => answer.rows.push(Row::Sqlite(row)),
                Some(Err(error)) => return Err(Stopped { done: Some(done), error }),
                None => return Err(Stopped { done: None, error: sqlx::Error::WorkerCrashed }),
            }
        }
        Ok(answer)
    }
}
