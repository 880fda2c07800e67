//! Errors of the record.
//!
//! Errors are `Clone`, because a failed commit is reported to every operation in its transaction.

use std::path::PathBuf;
use std::sync::Arc;

use ringwall_ids::{ExecId, IdError};

use crate::exec::status::Status;

type Source = Arc<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("could not {doing} {}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<std::io::Error>,
    },
    #[error("{} is not an ordinary file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} exists already", .0.display())]
    BackupExists(PathBuf),
    #[error("the path {} is not UTF-8", .0.display())]
    PathNotUtf8(PathBuf),
    #[error("`ringwall backup` cannot back up a PostgreSQL database")]
    BackupUnsupported,
    #[error("the database's URL is malformed")]
    Url(#[source] Source),
    /// The message omits the parameter's name: after an unescaped `?` in a password, the rest of
    /// the password looks like one.
    #[error("the database's URL has an unknown parameter after the `?`")]
    UrlParameter,

    #[error("the database has schema version {version}, which is newer than this program knows ({known})")]
    SchemaNewer { version: i64, known: i64 },
    #[error("the database's schema version {version} is not the one this program made")]
    SchemaForeign { version: i64 },
    #[error("could not migrate the database's schema")]
    Migrate(#[source] Arc<sqlx::migrate::MigrateError>),

    #[error("the database is damaged")]
    Corrupt(#[source] Source),
    #[error("row {key} of {table} cannot be read: column {column}")]
    CorruptRow {
        table: &'static str,
        key: String,
        column: &'static str,
        #[source]
        source: Source,
    },
    #[error("the audit chain is broken at entry {seq}")]
    ChainBroken { seq: i64 },
    #[error("the head of the audit chain (entry {seq}) is not signed with the key of this data directory")]
    HeadNotOurs { seq: i64 },

    #[error("the database stayed locked by another program for too long")]
    Busy,
    #[error("the database's disk is full")]
    DiskFull(#[source] Source),
    #[error("the database's write-ahead log could not be synced to disk")]
    LogFailed(#[source] Source),
    #[error("the database cannot be reached")]
    Unreachable(#[source] Source),
    #[error("the database did not confirm a commit; whether it happened is not known")]
    Unconfirmed(#[source] Source),
    #[error("could not {purpose}")]
    Database {
        purpose: &'static str,
        #[source]
        source: Source,
    },
    #[error("could not start the writer thread")]
    NoWriter(#[source] Arc<std::io::Error>),
    #[error("the record is closed")]
    Closed,
    #[error("this record was opened without the key that signs the audit chain, so nothing can be written")]
    NoKey,

    #[error(transparent)]
    Id(#[from] IdError),
    #[error("invalid value: expected {what}")]
    NameMalformed { what: &'static str },
    #[error("invalid cursor: expected one from a list of this server")]
    CursorMalformed,
    #[error("{column} contains a NUL character")]
    NulByte { column: &'static str },
    #[error("{column} is longer than {longest} bytes")]
    TextTooLong { column: &'static str, longest: usize },
    #[error("{column} is larger than a signed 64-bit integer")]
    NumberTooLarge { column: &'static str },

    #[error("there is no exec {0}")]
    UnknownExec(ExecId),
    #[error("an exec {0} is recorded already")]
    ExecIdTaken(ExecId),
    #[error("exec {exec_id} is {status} and does not wait to be started")]
    NotWaiting { exec_id: ExecId, status: Status },
    #[error("a token with this id or this hash is recorded already")]
    TokenTaken,
    #[error("all {count} host user ids of the range {first} to {last} are taken", count = last - first + 1)]
    IdentitiesExhausted { first: u32, last: u32 },
}

impl Error {
    /// True if the same call may succeed later without any change. HTTP answers such an error with
    /// 503.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Busy | Error::DiskFull(_) | Error::Unreachable(_) | Error::Unconfirmed(_))
    }

    /// True if the error is caused by the values to record, so that the same call can never
    /// succeed.
    pub fn is_invalid_input(&self) -> bool {
        matches!(
            self,
            Error::Id(_)
                | Error::NameMalformed { .. }
                | Error::NulByte { .. }
                | Error::TextTooLong { .. }
                | Error::NumberTooLarge { .. }
                | Error::UnknownExec(_)
                | Error::ExecIdTaken(_)
                | Error::NotWaiting { .. }
                | Error::TokenTaken
        )
    }

    /// Advice for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Error::BackupExists(_) => "name a file that does not exist yet, or move this one away",
            Error::BackupUnsupported => "use pg_dump",
            Error::UrlParameter => {
                "known are sslmode, sslrootcert, sslcert, sslkey, host, hostaddr, port, dbname, user, password, \
                 application_name and options; write a `?` in a password as %3F"
            }
            Error::Url(_) => "it looks like postgres://user:password@host/database",
            Error::SchemaNewer { .. } => "install the newer version of this program again; nothing was changed",
            Error::SchemaForeign { .. } => "this database was changed by another program; restore a backup",
            Error::Corrupt(_) | Error::CorruptRow { .. } => "restore a backup; nothing was changed",
            Error::ChainBroken { .. } => "run `ringwall audit verify`; nothing was removed",
            Error::HeadNotOurs { .. } => {
                "nothing was written; name the data directory of the server that uses this database with --data DIR; if \
                 it is that one, run `ringwall audit verify`"
            }
            Error::Busy => "try again; if it lasts, look for another program that holds the database",
            Error::DiskFull(_) => "free some space, or prune old records",
            Error::LogFailed(_) => "check the disk, then restart the server",
            Error::Unreachable(_) => "check that the database server runs and that its URL is right",
            Error::IdentitiesExhausted { .. } => "configure a larger range",
            _ => return None,
        })
    }

    /// Converts an error of either driver.
    pub(crate) fn from_database(purpose: &'static str, error: impl DriverError) -> Self {
        let class = error.class();
        let source: Source = Arc::new(error);
        match class {
            ErrorClass::Busy => Error::Busy,
            ErrorClass::DiskFull => Error::DiskFull(source),
            ErrorClass::Corrupt => Error::Corrupt(source),
            ErrorClass::ConnectionLost => Error::Unreachable(source),
            ErrorClass::Closed => Error::Closed,
            ErrorClass::Other => Error::Database { purpose, source },
        }
    }

    /// Converts an error of `COMMIT`: if the connection was lost, the commit may have happened.
    pub(crate) fn from_commit(error: impl DriverError) -> Self {
        match Self::from_database("commit", error) {
            Error::Unreachable(source) => Error::Unconfirmed(source),
            other => other,
        }
    }

    pub(crate) fn from_migration(error: sqlx::migrate::MigrateError, known: i64) -> Self {
        use sqlx::migrate::MigrateError;
        match error {
            MigrateError::VersionMissing(version) if version > known => Error::SchemaNewer { version, known },
            MigrateError::VersionMissing(version)
            | MigrateError::VersionMismatch(version)
            | MigrateError::Dirty(version) => Error::SchemaForeign { version },
            MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
                Self::from_database("migrate the database's schema", source)
            }
            other => Error::Migrate(Arc::new(other)),
        }
    }
}

/// An error of a database driver.
pub(crate) trait DriverError: std::error::Error + Send + Sync + 'static {
    fn class(&self) -> ErrorClass;
}

pub(crate) enum ErrorClass {
    Busy,
    DiskFull,
    Corrupt,
    ConnectionLost,
    Closed,
    Other,
}

impl DriverError for sqlx::Error {
    fn class(&self) -> ErrorClass {
        match self {
            sqlx::Error::PoolTimedOut => ErrorClass::Busy,
            sqlx::Error::PoolClosed => ErrorClass::Closed,
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                ErrorClass::ConnectionLost
            }
            sqlx::Error::Database(refusal) => match refusal.code() {
                // PostgreSQL's codes have five characters, SQLite's are numbers with at most four
                // digits.
                Some(code) if code.len() == 5 => class_of_postgres(&code),
                Some(code) => code.parse().map_or(ErrorClass::Other, class_of_sqlite),
                None => ErrorClass::Other,
            },
            _ => ErrorClass::Other,
        }
    }
}

impl DriverError for rusqlite::Error {
    fn class(&self) -> ErrorClass {
        match self {
            rusqlite::Error::SqliteFailure(failure, _) => class_of_sqlite(failure.extended_code),
            _ => ErrorClass::Other,
        }
    }
}

fn class_of_postgres(code: &str) -> ErrorClass {
    match code {
        // lock_not_available, deadlock_detected, query_canceled (by a timeout of ours),
        // too_many_connections
        "55P03" | "40P01" | "57014" | "53300" => ErrorClass::Busy,
        // disk_full
        "53100" => ErrorClass::DiskFull,
        // data_corrupted, index_corrupted
        "XX001" | "XX002" => ErrorClass::Corrupt,
        // admin_shutdown, crash_shutdown, cannot_connect_now, idle_in_transaction_session_timeout
        "57P01" | "57P02" | "57P03" | "25P03" => ErrorClass::ConnectionLost,
        _ if code.starts_with("08") => ErrorClass::ConnectionLost,
        _ => ErrorClass::Other,
    }
}

/// The primary code is in the low byte.
fn class_of_sqlite(code: i32) -> ErrorClass {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const NOT_A_DATABASE: i32 = 26;
    match code & 0xff {
        BUSY | LOCKED => ErrorClass::Busy,
        FULL => ErrorClass::DiskFull,
        CORRUPT | NOT_A_DATABASE => ErrorClass::Corrupt,
        _ => ErrorClass::Other,
    }
}
