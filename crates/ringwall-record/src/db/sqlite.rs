//! The connection to SQLite that writes: it works in the thread of whoever calls, which is the writer's own.
//!
//! A statement takes a few microseconds, and a thread that is woken for it tens of them; so no other thread is asked, as the
//! driver for reading does. Texts are kept prepared.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value as Stored, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, TransactionBehavior};

use crate::db::database::TIMEOUT;
use crate::db::statement::{Statement, Value};

/// As many texts as all operations together have, and some.
const PREPARED: usize = 128;

/// SQLite begins anew at the front of its log when that has grown to 1,000 pages; a transaction may go beyond.
const LOG_LENGTH: u64 = 1200 * (4096 + 24);

/// What a statement gave.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<HeldRow>,
    /// How many rows it changed. Says nothing where it only read.
    pub(crate) affected: u64,
}

/// Why the log is as long as it was. Nothing is lost by it but time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LengthenError {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error(transparent)]
    File(#[from] io::Error),
}

/// A row that does not belong to its statement any more.
#[derive(Debug)]
pub(crate) struct HeldRow {
    columns: Arc<[String]>,
    values: Vec<Stored>,
}

impl HeldRow {
    pub(crate) fn value(&self, column: &str) -> Option<ValueRef<'_>> {
        let place = self.columns.iter().position(|name| name == column)?;
        self.values.get(place).map(ValueRef::from)
    }
}

/// Opens a file that is there, with a log that is written ahead of it: that is what the writer forces to disk.
pub(crate) fn open<'p>(
    path: &Path,
    pragmas: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    for (name, value) in pragmas {
        connection.pragma_update(None, name, value)?;
    }
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        let words = "its file system lets no write-ahead log be shared; keep the database on a local disk";
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        return Err(rusqlite::Error::SqliteFailure(failure, Some(words.to_owned())));
    }
    Ok(connection)
}

/// Gives the log its usual length, in zeros, which SQLite takes for nothing. A commit that makes a file longer has to bring the
/// file system's own notes to the disk too, and takes twice as long as one that writes over what was there before.
///
/// Nobody appends to the log meanwhile: whoever writes there holds the lock that is held here.
pub(crate) fn lengthen(connection: &mut Connection, log: &Path) -> Result<(), LengthenError> {
    let turn = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut log = OpenOptions::new().write(true).open(log)?;
    let end = log.seek(SeekFrom::End(0))?;
    io::copy(&mut io::repeat(0).take(LOG_LENGTH.saturating_sub(end)), &mut log)?;
    Ok(turn.rollback()?)
}

/// Runs one statement to its end.
pub(crate) fn run(connection: &Connection, statement: &Statement) -> rusqlite::Result<Answer> {
    let mut prepared = connection.prepare_cached(&statement.text)?;
    let columns: Arc<[String]> = prepared.column_names().into_iter().map(str::to_owned).collect();
    // To SQLite `$1` is a name, and names are numbered as they come.
    for place in 1..=prepared.parameter_count() {
        let named = prepared.parameter_name(place).and_then(|name| name.trim_start_matches('$').parse::<usize>().ok());
        let value = named.and_then(|named| statement.values.get(named.checked_sub(1)?));
        let value = value.ok_or(rusqlite::Error::InvalidParameterCount(statement.values.len(), place))?;
        prepared.raw_bind_parameter(place, value)?;
    }
    let mut rows = Vec::new();
    let mut found = prepared.raw_query();
    while let Some(row) = found.next()? {
        let values = (0..columns.len()).map(|place| row.get(place)).collect::<rusqlite::Result<_>>()?;
        rows.push(HeldRow { columns: Arc::clone(&columns), values });
    }
    Ok(Answer { rows, affected: connection.changes() })
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

    /// Somewhere SQLite keeps no such log, and says so in no other way than by its answer.
    #[test]
    fn nothing_is_written_where_there_is_no_log() {
        let refused = open(Path::new(":memory:"), [("journal_mode", "WAL")]).unwrap_err();
        assert!(refused.to_string().contains("keep the database on a local disk"), "{refused}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("db");
        std::fs::write(&file, "").unwrap();
        open(&file, [("journal_mode", "WAL")]).unwrap();
    }
}
