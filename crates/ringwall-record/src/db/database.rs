//! Connects to SQLite or PostgreSQL.
//!
//! SQLite runs in WAL mode. The writer's connection has `synchronous=NORMAL`, because the writer
//! syncs the WAL itself before it acknowledges a commit; all others have `FULL`. A missing database
//! file is created with mode 0600. An existing one is never opened by this module: closing any
//! descriptor of the file would drop the POSIX locks that SQLite holds on it in this process.
//!
//! PostgreSQL connections follow the URL and get timeouts for locks, statements and answers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{ConnectOptions, Connection as _};

use crate::db::driver::{Connection, Pool};
use crate::db::{schema, sqlite};
use crate::error::Error;

/// Maximum wait for a lock, for a pooled connection or for room in the writer's queue. Then the
/// operation fails with [`Error::Busy`].
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

const CONNECT: &str = "connect to the database";

/// Between two attempts to migrate a locked SQLite database.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// PostgreSQL's `statement_timeout` and `idle_in_transaction_session_timeout`.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// A PostgreSQL server that sends no answer for this long counts as unreachable. Longer than
/// [`STATEMENT_TIMEOUT`], so that the server reports its own timeout first.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);

/// Connections for reads. Reads are short, and more of them would wait for the same disk.
const MAX_READERS: u32 = 4;

/// Set on every SQLite connection.
const PRAGMAS: [(&str, &str); 6] = [
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("foreign_keys", "ON"),
    // Triggers and views of a tampered schema cannot call functions with side effects.
    ("trusted_schema", "OFF"),
    // A damaged page is detected when it is read.
    ("cell_size_check", "ON"),
    // SQLite truncates a WAL that grew in a burst to 64 MiB when it next restarts it.
    ("journal_size_limit", "67108864"),
];

#[derive(Clone)]
pub enum Database {
    /// The database file, created if missing. No other user may have write access to its directory.
    Sqlite(PathBuf),
    /// `postgres://user:password@host/database`
    Postgres(String),
}

/// Omits the URL, which may contain a password.
impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => formatter.debug_tuple("Sqlite").field(path).finish(),
            Database::Postgres(_) => formatter.write_str("Postgres(…)"),
        }
    }
}

/// Checked options for new connections.
#[derive(Clone)]
pub(crate) enum Connector {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

/// Omits `PgConnectOptions`, which prints its password.
impl fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Connector::Sqlite(options) => formatter.debug_tuple("Sqlite").field(options).finish(),
            Connector::Postgres(_) => formatter.write_str("Postgres(…)"),
        }
    }
}

/// The URL parameters that sqlx knows. It ignores all others and logs their values: the log would
/// show the password after a misspelt `password=`.
const URL_PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Refuses a URL with a parameter that sqlx would ignore.
fn check_parameters(url: &str) -> Result<(), Error> {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    let Some((_, query)) = url.split_once('?') else { return Ok(()) };
    let names =
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")).0);
    let is_known = |name: &str| URL_PARAMETERS.contains(&name) || (name.starts_with("options[") && name.ends_with(']'));
    match names.into_iter().all(is_known) {
        true => Ok(()),
        false => Err(Error::UrlParameter),
    }
}

impl Connector {
    pub(crate) fn new(database: &Database) -> Result<Self, Error> {
        match database {
            Database::Sqlite(path) => {
                prepare_file(path)?;
                let options = SqliteConnectOptions::new().filename(path).busy_timeout(TIMEOUT);
                let options = PRAGMAS.into_iter().fold(options, |options, (name, value)| options.pragma(name, value));
                Ok(Connector::Sqlite(Box::new(options.disable_statement_logging())))
            }
            Database::Postgres(url) => {
                check_parameters(url)?;
                let options = PgConnectOptions::from_str(url).map_err(|error| Error::Url(Arc::new(error)))?;
                let milliseconds = |duration: Duration| duration.as_millis().to_string();
                let options = options
                    .application_name("ringwall")
                    .options([
                        ("lock_timeout", milliseconds(TIMEOUT)),
                        ("statement_timeout", milliseconds(STATEMENT_TIMEOUT)),
                        // Without it a client whose machine died in a transaction would block all
                        // writers.
                        ("idle_in_transaction_session_timeout", milliseconds(STATEMENT_TIMEOUT)),
                        ("synchronous_commit", "on".to_owned()),
                    ])
                    .disable_statement_logging();
                Ok(Connector::Postgres(Box::new(options)))
            }
        }
    }

    /// SQLite's WAL file. It may be opened and closed at any time: SQLite's locks are on other
    /// files.
    pub(crate) fn wal_path(&self) -> Option<PathBuf> {
        let Connector::Sqlite(options) = self else { return None };
        let mut path = options.get_filename().as_os_str().to_owned();
        path.push("-wal");
        Some(path.into())
    }

    /// Opens the writer's connection. For SQLite this blocks the thread, for up to [`TIMEOUT`] per
    /// lock, and a commit is on disk only after the caller has synced the WAL.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        let pragmas = PRAGMAS.into_iter().chain([("synchronous", "NORMAL")]);
        match self {
            Connector::Sqlite(options) => match sqlite::open(options.get_filename(), pragmas) {
                Ok(connection) => Ok(Connection::Sqlite(Box::new(connection))),
                Err(error) => Err(Error::from_database(CONNECT, error)),
            },
            Connector::Postgres(options) => {
                Ok(Connection::Postgres(Box::new(with_connect_timeout(options.connect()).await?)))
            }
        }
    }

    /// Creates or updates the schema. Retries for [`TIMEOUT`] while the database is busy: where
    /// waiting could deadlock, as when two processes switch a new file to WAL mode, SQLite ignores
    /// its busy timeout and fails at once.
    pub(crate) async fn migrate(&self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            match self.migrate_once().await {
                Err(Error::Busy) if begun.elapsed() < TIMEOUT => tokio::time::sleep(RETRY_PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    async fn migrate_once(&self) -> Result<(), Error> {
        match self {
            Connector::Sqlite(options) => {
                let mut connection = with_connect_timeout(options.connect()).await?;
                schema::migrate_sqlite(&mut connection).await?;
                // After a failed close the next connection recovers the WAL.
                let _ = connection.close().await;
            }
            Connector::Postgres(options) => {
                let mut connection = with_connect_timeout(options.connect()).await?;
                schema::migrate_postgres(&mut connection).await?;
                let _ = connection.close().await;
            }
        }
        Ok(())
    }

    /// The pool of read-only connections. They are opened on demand.
    pub(crate) fn readers(&self) -> Pool {
        match self {
            Connector::Sqlite(options) => {
                let pool = SqlitePoolOptions::new().max_connections(MAX_READERS).acquire_timeout(TIMEOUT);
                let options = options.as_ref().clone().read_only(true);
                Pool::Sqlite(pool.test_before_acquire(false).connect_lazy_with(options))
            }
            Connector::Postgres(options) => {
                let pool = PgPoolOptions::new().max_connections(MAX_READERS).acquire_timeout(TIMEOUT);
                let options = options.as_ref().clone().options([
                    ("default_transaction_read_only", "on"),
                    // Every query has an index in the order of its result. If the planner expects
                    // few rows, it collects and sorts all of them instead; for many rows that takes
                    // 100 times as long as reading the first page from the index.
                    ("enable_bitmapscan", "off"),
                ]);
                Pool::Postgres(pool.connect_lazy_with(options))
            }
        }
    }
}

/// Limits connecting to twice [`TIMEOUT`]: opening SQLite can wait for several locks, each for up
/// to [`TIMEOUT`].
async fn with_connect_timeout<C>(connecting: impl Future<Output = Result<C, sqlx::Error>>) -> Result<C, Error> {
    match tokio::time::timeout(TIMEOUT * 2, connecting).await {
        Ok(connected) => connected.map_err(|error| Error::from_database(CONNECT, error)),
        Err(_) => Err(Error::Busy),
    }
}

/// Creates the database file, or checks that it is a regular file and restricts its mode to 0600.
/// SQLite gives the WAL the same mode.
fn prepare_file(path: &Path) -> Result<(), Error> {
    let failed = |doing| {
        move |errno: rustix::io::Errno| Error::File { doing, path: path.to_owned(), source: Arc::new(errno.into()) }
    };
    let private = Mode::RUSR | Mode::WUSR;
    match create_private(path) {
        Ok(_) => return Ok(()),
        Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(failed("create the database")(errno)),
    }
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("look at the database"))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Error::NotAFile(path.to_owned()));
    }
    if !Mode::from_raw_mode(found.st_mode).difference(private).is_empty() {
        rustix::fs::chmodat(CWD, path, private, AtFlags::empty()).map_err(failed("protect the database"))?;
    }
    Ok(())
}

/// Creates a file with mode 0600. Fails with `EEXIST` if the name exists, even as a dangling link.
pub(crate) fn create_private(path: &Path) -> Result<rustix::fd::OwnedFd, rustix::io::Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)
}
