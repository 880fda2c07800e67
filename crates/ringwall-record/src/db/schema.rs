//! Creates and upgrades the database schema.
//!
//! Migrations are embedded in the binary and only go forward. sqlx stores a checksum of each file's
//! text, comments included, and compares it at each start: never edit a released file. A database
//! with a newer schema or another checksum is refused and left unchanged.

use std::borrow::Cow;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

use crate::error::Error;

/// Version, description and SQL.
type Step = (i64, &'static str, &'static str);

const SQLITE: [Step; 15] = [
    (1, "execs and audit", include_str!("../../migrations/sqlite/0001_execs_and_audit.sql")),
    (2, "tokens, settings, identities", include_str!("../../migrations/sqlite/0002_tokens_settings_identities.sql")),
    (3, "lists", include_str!("../../migrations/sqlite/0003_lists.sql")),
    (4, "sandbox paths", include_str!("../../migrations/sqlite/0004_sandbox_paths.sql")),
    (5, "approvals", include_str!("../../migrations/sqlite/0005_approvals.sql")),
    (6, "sessions", include_str!("../../migrations/sqlite/0006_sessions.sql")),
    (7, "networks", include_str!("../../migrations/sqlite/0007_networks.sql")),
    (8, "browser actions", include_str!("../../migrations/sqlite/0008_browser_actions.sql")),
    (9, "exec policies", include_str!("../../migrations/sqlite/0009_exec_policies.sql")),
    (10, "filing", include_str!("../../migrations/sqlite/0010_filing.sql")),
    (11, "unfiled entries", include_str!("../../migrations/sqlite/0011_unfiled_entries.sql")),
    (12, "session words", include_str!("../../migrations/sqlite/0012_session_words.sql")),
    (13, "signed head", include_str!("../../migrations/sqlite/0013_signed_head.sql")),
    (14, "record usage", include_str!("../../migrations/sqlite/0014_record_usage.sql")),
    (15, "approval files", include_str!("../../migrations/sqlite/0015_approval_files.sql")),
];
const POSTGRES: [Step; 15] = [
    (1, "execs and audit", include_str!("../../migrations/postgres/0001_execs_and_audit.sql")),
    (2, "tokens, settings, identities", include_str!("../../migrations/postgres/0002_tokens_settings_identities.sql")),
    (3, "lists", include_str!("../../migrations/postgres/0003_lists.sql")),
    (4, "sandbox paths", include_str!("../../migrations/postgres/0004_sandbox_paths.sql")),
    (5, "approvals", include_str!("../../migrations/postgres/0005_approvals.sql")),
    (6, "sessions", include_str!("../../migrations/postgres/0006_sessions.sql")),
    (7, "networks", include_str!("../../migrations/postgres/0007_networks.sql")),
    (8, "browser actions", include_str!("../../migrations/postgres/0008_browser_actions.sql")),
    (9, "exec policies", include_str!("../../migrations/postgres/0009_exec_policies.sql")),
    (10, "filing", include_str!("../../migrations/postgres/0010_filing.sql")),
    (11, "unfiled entries", include_str!("../../migrations/postgres/0011_unfiled_entries.sql")),
    (12, "session words", include_str!("../../migrations/postgres/0012_session_words.sql")),
    (13, "signed head", include_str!("../../migrations/postgres/0013_signed_head.sql")),
    (14, "record usage", include_str!("../../migrations/postgres/0014_record_usage.sql")),
    (15, "approval files", include_str!("../../migrations/postgres/0015_approval_files.sql")),
];

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

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

    use super::*;

    /// Migration 11 computes `audit_head.filed_through` from the `filed` flags of the entries.
    #[tokio::test]
    async fn migration_11_keeps_unfiled_entries_unfiled() {
        for (filed, through) in [(vec![], 0), (vec![1, 1], 2), (vec![1, 0, 0], 1), (vec![0], 0)] {
            let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
            migrator(&SQLITE[..10]).run_direct(None, &mut connection, false).await.unwrap();
            for (index, is_filed) in filed.iter().enumerate() {
                let seq = index + 1;
                let text = format!(
                    "INSERT INTO audit (seq, at, actor, action, subject, detail, previous, hash, filed) \
                     VALUES ({seq}, 0, 'a', 'a', 's', '{{}}', x'', x'', {is_filed}); UPDATE audit_head SET seq = {seq}"
                );
                sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
            }
            migrate_sqlite(&mut connection).await.unwrap();
            let query = sqlx::query_scalar::<_, i64>("SELECT filed_through FROM audit_head");
            assert_eq!(query.fetch_one(&mut connection).await.unwrap(), through, "{filed:?}");
        }
    }
}
