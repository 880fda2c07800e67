//! Runs statements on either database and reads columns from the rows.
//!
//! PostgreSQL and the read-only SQLite connections use sqlx; the writer's SQLite connection uses
//! rusqlite (`sqlite`). Enums over both databases replace sqlx's `Any` driver, which supports fewer
//! types.

use std::sync::Arc;

use rusqlite::types::FromSql;
use sqlx::postgres::PgRow;
use sqlx::query::Query;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Connection as _, Encode, PgExecutor, Postgres, Row as _, Sqlite, SqliteExecutor, Type};
use tokio::time::timeout;

use crate::db::database::ANSWER_TIMEOUT;
use crate::db::sqlite::OwnedRow;
use crate::db::statement::{Statement, Value};
use crate::error::Error;

#[derive(Debug, Clone)]
pub(crate) enum Pool {
    Sqlite(sqlx::SqlitePool),
    Postgres(sqlx::PgPool),
}

#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(Box<rusqlite::Connection>),
    Postgres(Box<sqlx::PgConnection>),
}

/// A read transaction: all its reads see the same state of the database.
#[derive(Debug)]
pub(crate) enum Snapshot {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

pub(crate) enum Row {
    Sqlite(SqliteRow),
    /// From the writer's SQLite connection.
    Rusqlite(OwnedRow),
    Postgres(PgRow),
}

impl Pool {
    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<Row>, Error> {
        match self {
            Pool::Sqlite(pool) => rows_of_sqlite(pool, statement).await,
            Pool::Postgres(pool) => rows_of_postgres(pool, statement).await,
        }
    }

    pub(crate) async fn row(&self, statement: Statement) -> Result<Option<Row>, Error> {
        Ok(self.rows(statement).await?.into_iter().next())
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, Error> {
        let begun = match self {
            Pool::Sqlite(pool) => pool.begin().await.map(Snapshot::Sqlite),
            Pool::Postgres(pool) => {
                let text = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                with_answer_timeout(pool.begin_with(text)).await.map(Snapshot::Postgres)
            }
        };
        begun.map_err(|error| Error::from_database("begin a read transaction", error))
    }

    pub(crate) async fn close(&self) {
        match self {
            Pool::Sqlite(pool) => pool.close().await,
            Pool::Postgres(pool) => pool.close().await,
        }
    }
}

impl Connection {
    pub(crate) async fn close(self) {
        // A failed close loses no committed data.
        match self {
            Connection::Sqlite(connection) => drop(connection.close()),
            Connection::Postgres(connection) => drop(with_answer_timeout(connection.close()).await),
        }
    }
}

impl Snapshot {
    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Row>, Error> {
        match self {
            Snapshot::Sqlite(transaction) => rows_of_sqlite(&mut **transaction, statement).await,
            Snapshot::Postgres(transaction) => rows_of_postgres(&mut **transaction, statement).await,
        }
    }

    pub(crate) async fn row(&mut self, statement: Statement) -> Result<Option<Row>, Error> {
        Ok(self.rows(statement).await?.into_iter().next())
    }

    pub(crate) async fn rollback(self) -> Result<(), sqlx::Error> {
        match self {
            Snapshot::Sqlite(transaction) => transaction.rollback().await,
            Snapshot::Postgres(transaction) => with_answer_timeout(transaction.rollback()).await,
        }
    }
}

async fn rows_of_sqlite<'e>(executor: impl SqliteExecutor<'e>, statement: Statement) -> Result<Vec<Row>, Error> {
    let purpose = statement.purpose;
    let rows = query(statement).fetch_all(executor).await;
    let rows = rows.map_err(|error| Error::from_database(purpose, error))?;
    Ok(rows.into_iter().map(Row::Sqlite).collect())
}

pub(crate) async fn rows_of_postgres<'e>(
    executor: impl PgExecutor<'e>,
    statement: Statement,
) -> Result<Vec<Row>, Error> {
    let purpose = statement.purpose;
    let rows = with_answer_timeout(query(statement).fetch_all(executor)).await;
    let rows = rows.map_err(|error| Error::from_database(purpose, error))?;
    Ok(rows.into_iter().map(Row::Postgres).collect())
}

/// The statement for either of sqlx's drivers. A value that cannot be encoded is reported when the
/// query runs.
pub(crate) fn query<DB: sqlx::Database>(statement: Statement) -> Query<'static, DB, DB::Arguments>
where
    Option<i64>: for<'v> Encode<'v, DB> + Type<DB>,
    Option<String>: for<'v> Encode<'v, DB> + Type<DB>,
    Option<Vec<u8>>: for<'v> Encode<'v, DB> + Type<DB>,
{
    let query = sqlx::query(AssertSqlSafe(statement.text));
    statement.values.into_iter().fold(query, |query, value| match value {
        Value::Integer(number) => query.bind(number),
        Value::Text(text) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}

/// A column whose value cannot be read.
#[derive(Debug)]
pub(crate) struct BadColumn {
    column: &'static str,
    source: sqlx::Error,
}

impl BadColumn {
    pub(crate) fn new(column: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { column, source: sqlx::Error::Decode(Box::new(source)) }
    }
}

impl Row {
    pub(crate) fn get<T>(&self, column: &'static str) -> Result<T, BadColumn>
    where
        T: for<'r> sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
        T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
        T: FromSql,
    {
        let value = match self {
            Row::Sqlite(row) => row.try_get(column),
            Row::Rusqlite(row) => match row.value(column) {
                Some(value) => T::column_result(value).map_err(|error| sqlx::Error::Decode(Box::new(error))),
                None => Err(sqlx::Error::ColumnNotFound(column.to_owned())),
            },
            Row::Postgres(row) => row.try_get(column),
        };
        value.map_err(|source| BadColumn { column, source })
    }

    /// The stored value. SQL NULL becomes a text: digests encode NULLs of all types alike.
    pub(crate) fn value(&self, column: &'static str) -> Result<Value, BadColumn> {
        let bytes = || self.get(column).map(Value::Bytes);
        let integer = || self.get(column).map(Value::Integer);
        self.get(column).map(Value::Text).or_else(|_| integer()).or_else(|_| bytes())
    }

    /// Converts the row with `read`. On failure the error names the table, the row's key and the
    /// column.
    pub(crate) fn read<T>(
        &self,
        table: &'static str,
        key: &'static str,
        read: impl FnOnce(&Self) -> Result<T, BadColumn>,
    ) -> Result<T, Error> {
        read(self).map_err(|BadColumn { column, source }| {
            let number = || self.get::<i64>(key).map(|number| number.to_string());
            let key = self.get::<String>(key).or_else(|_| number()).unwrap_or_default();
            Error::CorruptRow { table, key, column, source: Arc::new(source) }
        })
    }
}

/// Waits for PostgreSQL for at most [`ANSWER_TIMEOUT`]; then the server counts as unreachable. Not
/// needed for SQLite, which has no peer that could vanish.
pub(crate) async fn with_answer_timeout<T>(
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let silence = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
    timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(silence)
}
