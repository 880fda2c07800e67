//! Creates and upgrades the database schema.
//!
//! Migrations are embedded in the binary and only go forward. SQLite and PostgreSQL have the same
//! versions. sqlx stores a checksum of each file's text, comments included, and compares it at each
//! start: never edit a released file. A database with a newer schema or another checksum is refused
//! and left unchanged.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

use crate::error::Error;

/// Version, description and SQL.
type Step = (i64, &'static str, &'static str);

const SQLITE: [Step; 1] = [(1, "initial", include_str!("../../migrations/sqlite/0001_initial.sql"))];
const POSTGRES: [Step; 1] = [(1, "initial", include_str!("../../migrations/postgres/0001_initial.sql"))];

/// sqlx takes no lock for SQLite migrations. If several processes migrate at once, a step that
/// another process has just applied fails ("table exists"). By then that process has committed the
/// step, so one process can fail at most once per step.
const ATTEMPTS: usize = SQLITE.len() + 1;

pub(crate) async fn migrate_sqlite(connection: &mut sqlx::SqliteConnection) -> Result<(), Error> {
    let migrator = migrator(&SQLITE);
    let mut attempt = 1;
    loop {
        match migrator.run_direct(None, connection, false).await {
            Ok(()) => return Ok(()),
            Err(sqlx::migrate::MigrateError::ExecuteMigration(..)) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(Error::from_migration(error, newest(&migrator))),
        }
    }
}

pub(crate) async fn migrate_postgres(connection: &mut sqlx::PgConnection) -> Result<(), Error> {
    let migrator = migrator(&POSTGRES);
    let outcome = migrator.run_direct(None, connection, false).await;
    outcome.map_err(|error| Error::from_migration(error, newest(&migrator)))
}

fn migrator(steps: &'static [Step]) -> Migrator {
    let migrations = steps.iter().map(|(version, description, text)| {
        Migration::new(*version, Cow::Borrowed(*description), MigrationType::Simple, text.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or_default()
}
