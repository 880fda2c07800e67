//! The writer's SQLite connection.
//!
//! It uses rusqlite and runs in the writer's thread. sqlx would pass each statement to a thread of
//! its own: waking that takes tens of microseconds, the statement itself a few. Statements stay
//! prepared.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value as Stored, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, TransactionBehavior};

use crate::db::database::TIMEOUT;
use crate::db::statement::{Statement, Value};

/// More than the number of different statements that the writer uses.
const STATEMENT_CACHE_CAPACITY: usize = 128;

/// 1,200 WAL frames of a 24-byte header and a 4 KiB page. SQLite restarts the WAL after 1,000
/// frames (`wal_autocheckpoint`); the last transaction before that can exceed them.
const WAL_LENGTH: u64 = 1200 * (4096 + 24);

/// The result of a statement.
#[derive(Debug)]
pub(crate) struct StatementResult {
    pub(crate) rows: Vec<OwnedRow>,
    /// The number of changed rows. Meaningless for a statement that only reads.
    pub(crate) affected: u64,
}

/// Extending the WAL failed. Harmless: later commits are slower.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExtendWalError {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error(transparent)]
    File(#[from] io::Error),
}

/// A row that was copied out of its statement.
#[derive(Debug)]
pub(crate) struct OwnedRow {
    columns: Arc<[String]>,
    values: Vec<Stored>,
}

impl OwnedRow {
    pub(crate) fn value(&self, column: &str) -> Option<ValueRef<'_>> {
        let index = self.columns.iter().position(|name| name == column)?;
        self.values.get(index).map(ValueRef::from)
    }
}

/// Opens an existing database file. Fails if SQLite cannot use WAL mode for it, because the writer
/// makes commits durable by syncing the WAL.
pub(crate) fn open<'p>(
    path: &Path,
    pragmas: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_CAPACITY);
    for (name, value) in pragmas {
        connection.pragma_update(None, name, value)?;
    }
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        let message = "its file system does not support a write-ahead log; keep the database on a local disk";
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        return Err(rusqlite::Error::SqliteFailure(failure, Some(message.to_owned())));
    }
    Ok(connection)
}

/// Extends the WAL with zeros, which SQLite ignores. A commit that makes the file longer also has
/// to sync file system metadata and takes twice as long as one that overwrites existing blocks.
///
/// Holds SQLite's write lock, so that no connection appends to the WAL meanwhile.
pub(crate) fn extend_wal(connection: &mut Connection, wal: &Path) -> Result<(), ExtendWalError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut wal = OpenOptions::new().write(true).open(wal)?;
    let end = wal.seek(SeekFrom::End(0))?;
    io::copy(&mut io::repeat(0).take(WAL_LENGTH.saturating_sub(end)), &mut wal)?;
    Ok(transaction.rollback()?)
}

/// Runs one statement and collects all its rows.
pub(crate) fn run(connection: &Connection, statement: &Statement) -> rusqlite::Result<StatementResult> {
    let mut prepared = connection.prepare_cached(&statement.text)?;
    let columns: Arc<[String]> = prepared.column_names().into_iter().map(str::to_owned).collect();
    // To SQLite `$1` is a name, and it numbers names in the order of their first use.
    for index in 1..=prepared.parameter_count() {
        let named = prepared.parameter_name(index).and_then(|name| name.trim_start_matches('$').parse::<usize>().ok());
        let value = named.and_then(|named| statement.values.get(named.checked_sub(1)?));
        let value = value.ok_or(rusqlite::Error::InvalidParameterCount(statement.values.len(), index))?;
        prepared.raw_bind_parameter(index, value)?;
    }
    let mut rows = Vec::new();
    let mut found = prepared.raw_query();
    while let Some(row) = found.next()? {
        let values = (0..columns.len()).map(|index| row.get(index)).collect::<rusqlite::Result<_>>()?;
        rows.push(OwnedRow { columns: Arc::clone(&columns), values });
    }
    Ok(StatementResult { rows, affected: connection.changes() })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Integer(Some(number)) => ValueRef::Integer(*number),
            Value::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(Some(bytes)) => ValueRef::Blob(bytes),
            Value::Integer(None) | Value::Text(None) | Value::Bytes(None) => ValueRef::Null,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For `:memory:` SQLite answers the pragma with another journal mode and reports no error.
    #[test]
    fn database_without_wal_is_refused() {
        let refused = open(Path::new(":memory:"), [("journal_mode", "WAL")]).unwrap_err();
        assert!(refused.to_string().contains("keep the database on a local disk"), "{refused}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("db");
        std::fs::write(&file, "").unwrap();
        open(&file, [("journal_mode", "WAL")]).unwrap();
    }
}
