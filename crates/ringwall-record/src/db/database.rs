//! Which database, and how connections to it are made.
//!
//! SQLite: a write-ahead log, and every commit on disk before it is acknowledged; the writer sees to that itself. The
//! file is made here, with mode 0600, and never opened here when it exists: closing any descriptor of a database's file
//! drops the locks that SQLite holds on it in the same process. PostgreSQL: whatever the URL says, with bounds on waiting.

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

/// How long anybody waits for a lock before it is said that the database is busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

const CONNECT: &str = "connect to the database";

/// Between two attempts at what cannot wait for a lock.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a server may work on one statement, and how long it may then say nothing.
const STATEMENT: Duration = Duration::from_secs(60);
pub(crate) const SILENCE: Duration = Duration::from_secs(65);

/// Reads are short; more connections than this only wait for the same disk.
const READERS: u32 = 4;

/// For every connection to SQLite.
const PRAGMAS: [(&str, &str); 6] = [
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("foreign_keys", "ON"),
    // A schema that somebody planted cannot call functions with effects, and a damaged page is noticed when it is read.
    ("trusted_schema", "OFF"),
    ("cell_size_check", "ON"),
    // The log shrinks again after a burst.
    ("journal_size_limit", "67108864"),
];

#[derive(Clone)]
pub enum Database {
    /// A file, made when it is not there. Its directory must be ours alone.
    Sqlite(PathBuf),
    /// `postgres://user:password@host/database`
    Postgres(String),
}

/// A URL may hold a password.
impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => formatter.debug_tuple("Sqlite").field(path).finish(),
            Database::Postgres(_) => formatter.write_str("Postgres(…)"),
        }
    }
}

/// How to connect, with everything checked that can be checked without connecting.
#[derive(Clone)]
pub(crate) enum Connector {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

/// `PgConnectOptions` prints its password.
impl fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Connector::Sqlite(options) => formatter.debug_tuple("Sqlite").field(options).finish(),
            Connector::Postgres(_) => formatter.write_str("Postgres(…)"),
        }
    }
}

/// The parameters of a URL that sqlx knows. It ignores all others and logs their values, which may be a password under a
/// misspelt name.
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
                        ("statement_timeout", milliseconds(STATEMENT)),
                        // A writer whose machine vanished in a transaction would lock out all others.
                        ("idle_in_transaction_session_timeout", milliseconds(STATEMENT)),
                        ("synchronous_commit", "on".to_owned()),
                    ])
                    .disable_statement_logging();
                Ok(Connector::Postgres(Box::new(options)))
            }
        }
    }

    /// The file that SQLite writes commits to first, and that it holds no locks on.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        let Connector::Sqlite(options) = self else { return None };
        let mut log = options.get_filename().as_os_str().to_owned();
        log.push("-wal");
        Some(log.into())
    }

    /// The writer's connection. SQLite's is opened in this thread, which may wait for a lock, with a bound; its commits are on
    /// disk when the log is forced there.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        let pragmas = PRAGMAS.into_iter().chain([("synchronous", "NORMAL")]);
        match self {
            Connector::Sqlite(options) => match sqlite::open(options.get_filename(), pragmas) {
                Ok(connection) => Ok(Connection::Sqlite(Box::new(connection))),
                Err(error) => Err(Error::from_database(CONNECT, error)),
            },
            Connector::Postgres(options) => Ok(Connection::Postgres(Box::new(patiently(options.connect()).await?))),
        }
    }

    /// Where waiting could be a deadlock (two who make a new file's log at once) SQLite does not wait, whatever its bound
    /// is, and says at once that it is busy. So here somebody else waits.
    pub(crate) async fn migrate(&self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            match self.migrate_once().await {
                Err(Error::Busy) if begun.elapsed() < TIMEOUT => tokio::time::sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    async fn migrate_once(&self) -> Result<(), Error> {
        match self {
            Connector::Sqlite(options) => {
                let mut connection = patiently(options.connect()).await?;
                schema::migrate_sqlite(&mut connection).await?;
                // What a failed close leaves, the next open finds.
                let _ = connection.close().await;
            }
            Connector::Postgres(options) => {
                let mut connection = patiently(options.connect()).await?;
                schema::migrate_postgres(&mut connection).await?;
                let _ = connection.close().await;
            }
        }
        Ok(())
    }

    /// Connections that only read. None is made before it is needed.
    pub(crate) fn readers(&self) -> Pool {
        match self {
            Connector::Sqlite(options) => {
                let pool = SqlitePoolOptions::new().max_connections(READERS).acquire_timeout(TIMEOUT);
                let options = options.as_ref().clone().read_only(true);
                Pool::Sqlite(pool.test_before_acquire(false).connect_lazy_with(options))
            }
            Connector::Postgres(options) => {
                let pool = PgPoolOptions::new().max_connections(READERS).acquire_timeout(TIMEOUT);
                let options = options.as_ref().clone().options([
                    ("default_transaction_read_only", "on"),
                    // Every question has an index in the order of its answer. Where few rows are expected and very many
                    // come, collecting and sorting them all takes a hundred times as long as reading the first.
                    ("enable_bitmapscan", "off"),
                ]);
                Pool::Postgres(pool.connect_lazy_with(options))
            }
        }
    }
}

/// SQLite waits for a lock with a bound of its own, in which opening can take more than one.
async fn patiently<C>(connecting: impl Future<Output = Result<C, sqlx::Error>>) -> Result<C, Error> {
    match tokio::time::timeout(TIMEOUT * 2, connecting).await {
        Ok(connected) => connected.map_err(|error| Error::from_database(CONNECT, error)),
        Err(_) => Err(Error::Busy),
    }
}

/// Sees to it that the file is there, is a file, and is nobody else's to read. SQLite gives its log the same mode.
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

/// Makes a file that was not there, for us alone. Whatever is there already, a link too, is left as it is.
pub(crate) fn create_private(path: &Path) -> Result<rustix::fd::OwnedFd, rustix::io::Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)
}
