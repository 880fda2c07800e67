//! The database of one test, with access past the store.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use ringwall_record::{Database, HeadKey, Progress, Store, Verification};
use sqlx::{AssertSqlSafe, Connection as _};
use tempfile::TempDir;

use crate::cluster::Cluster;

pub struct TestDatabase {
    pub database: Database,
    /// Removed on drop. Absent for PostgreSQL and for further databases.
    directory: Option<TempDir>,
}

impl TestDatabase {
    pub fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { database: Database::Sqlite(directory.path().join("record.db")), directory: Some(directory) }
    }

    pub fn postgres(cluster: &Cluster) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self { database: Database::Postgres(cluster.create_database(&name)), directory: None }
    }

    /// A new database of the same kind. SQLite's file is in the same directory.
    pub async fn another(&self, number: u32) -> Self {
        let database = match &self.database {
            Database::Sqlite(path) => Database::Sqlite(path.with_file_name(format!("another_{number}.db"))),
            Database::Postgres(url) => {
                let (server, name) = url.rsplit_once('/').unwrap();
                let name = format!("{name}_{number}");
                self.execute(&format!("CREATE DATABASE {name}")).await.unwrap();
                Database::Postgres(format!("{server}/{name}"))
            }
        };
        Self { database, directory: None }
    }

    pub async fn open(&self) -> Store {
        Store::open(self.database.clone(), Some(key())).await.unwrap()
    }

    pub fn is_sqlite(&self) -> bool {
        matches!(self.database, Database::Sqlite(_))
    }

    /// The database's file.
    pub fn file(&self) -> PathBuf {
        match &self.database {
            Database::Sqlite(path) => path.clone(),
            Database::Postgres(_) => panic!("not a file"),
        }
    }

    pub fn directory(&self) -> PathBuf {
        self.directory.as_ref().unwrap().path().to_owned()
    }

    /// Executes any SQL on a connection of its own, and returns the number of affected rows.
    pub async fn execute(&self, text: &str) -> Result<u64, sqlx::Error> {
        let text = AssertSqlSafe(text.to_owned());
        match &self.database {
            Database::Sqlite(path) => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
                let mut connection = sqlx::SqliteConnection::connect_with(&options).await?;
                let done = sqlx::raw_sql(text).execute(&mut connection).await.map(|done| done.rows_affected());
                connection.close().await?;
                done
            }
            Database::Postgres(url) => {
                let mut connection = sqlx::PgConnection::connect(url).await?;
                sqlx::raw_sql(text).execute(&mut connection).await.map(|done| done.rows_affected())
            }
        }
    }

    /// Drops the triggers that protect the audit table and executes the SQL, which must change
    /// rows.
    pub async fn tamper(&self, text: &str) {
        for trigger in ["audit_unchanged", "audit_kept"] {
            let on = if self.is_sqlite() { "" } else { " ON audit" };
            self.execute(&format!("DROP TRIGGER IF EXISTS {trigger}{on}")).await.unwrap();
        }
        assert!(self.execute(text).await.unwrap() > 0, "{text} changed nothing");
    }

    /// A SQL literal of 32 equal bytes.
    pub fn bytes(&self, byte: u8) -> String {
        let digits = format!("{byte:02x}").repeat(32);
        if self.is_sqlite() { format!("x'{digits}'") } else { format!("decode('{digits}', 'hex')") }
    }
}

/// The key that signs heads in these tests.
pub fn key() -> HeadKey {
    HeadKey::new([7; 32])
}

pub async fn verify(store: &Store) -> Verification {
    let mut seen = Progress { checked: 0, of: 0 };
    let verification = store.verify(|progress| seen = progress).await.unwrap();
    assert_eq!(seen.checked, verification.checked, "the last progress report is complete");
    verification
}

pub async fn assert_intact(store: &Store) {
    let verification = verify(store).await;
    assert!(verification.is_intact(), "{:?}", verification.findings);
}
