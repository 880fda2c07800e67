//! Faults of either database: locks, foreign schemas, damaged rows, a closed store.

use futures::future::join_all;
use ringwall_record::{Database, Error, Scope, Store};
use sqlx::Connection as _;

use crate::database::{TestDatabase, assert_intact, key};
use crate::samples::{event, exec_id, running};

/// Another connection holds the write lock for longer than the writer waits (5 s).
pub async fn lock_held_too_long_is_busy(db: TestDatabase) {
    let store = db.open().await;
    store.append(event(1)).await.unwrap();
    let outcomes = match &db.database {
        Database::Sqlite(path) => {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
            let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            let outcomes = join_all((0..5).map(|number| store.append(event(number)))).await;
            connection.close().await.unwrap();
            outcomes
        }
        Database::Postgres(url) => {
            let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
            sqlx::raw_sql("BEGIN; SELECT * FROM audit_head FOR UPDATE").execute(&mut connection).await.unwrap();
            let outcomes = join_all((0..5).map(|number| store.append(event(number)))).await;
            connection.close().await.unwrap();
            outcomes
        }
    };
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Busy) && error.is_transient(), "{error:?}");
    }
    assert_eq!(store.append(event(2)).await.unwrap(), 2, "the failed operations wrote nothing");
    assert_intact(&store).await;
}

pub async fn newer_schema_is_refused(db: TestDatabase) {
    let store = db.open().await;
    store.append(event(1)).await.unwrap();
    store.close().await;
    db.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             SELECT 9999, description, success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1",
    )
    .await
    .unwrap();
    let refused = Store::open(db.database.clone(), Some(key())).await.unwrap_err();
    assert!(matches!(refused, Error::SchemaNewer { version: 9999, known: 1 }), "{refused:?}");
    assert!(refused.hint().is_some());
    db.execute("DELETE FROM _sqlx_migrations WHERE version = 9999").await.unwrap();
    assert_eq!(db.open().await.audit_head().await.unwrap().seq, 1, "nothing was changed");
}

pub async fn altered_schema_is_refused(db: TestDatabase) {
    db.open().await.close().await;
    db.execute(&format!("UPDATE _sqlx_migrations SET checksum = {} WHERE version = 1", db.bytes(1))).await.unwrap();
    let refused = Store::open(db.database.clone(), Some(key())).await.unwrap_err();
    assert!(matches!(refused, Error::SchemaForeign { version: 1 }), "{refused:?}");
}

pub async fn corrupt_row_is_named(db: TestDatabase) {
    let store = db.open().await;
    for number in 1..=2 {
        store.intend(&running(number)).await.unwrap();
    }
    let id = exec_id(1).to_string();
    for (change, column) in [
        ("args = 'no JSON'", "args"),
        ("policy_snapshot = '{'", "policy_snapshot"),
        ("max_rss_bytes = -1", "max_rss_bytes"),
    ] {
        db.execute(&format!("UPDATE sandbox_execs SET {change} WHERE exec_id = '{id}'")).await.unwrap();
        let refused = store.exec(&exec_id(1), &Scope::All).await.unwrap_err();
        let named = matches!(&refused, Error::CorruptRow { table: "sandbox_execs", key, column: found, .. } if *key == id && *found == column);
        assert!(named, "{refused:?}");
        // Undo, so that the next column is the only bad one.
        db.execute(&format!("UPDATE sandbox_execs SET args = '[]', policy_snapshot = '{{}}', max_rss_bytes = NULL WHERE exec_id = '{id}'")).await.unwrap();
    }
    assert!(store.exec(&exec_id(2), &Scope::All).await.unwrap().is_some());
}

pub async fn concurrent_opens_migrate_new_database(db: TestDatabase) {
    let stores = join_all((0..6).map(|_| Store::open(db.database.clone(), Some(key())))).await;
    let stores: Vec<Store> = stores.into_iter().map(Result::unwrap).collect();
    for (number, store) in (1..).zip(&stores) {
        assert_eq!(store.append(event(number)).await.unwrap(), number);
    }
    assert_intact(&stores[0]).await;
}

pub async fn closed_store_refuses_calls(db: TestDatabase) {
    let store = db.open().await;
    let clone = store.clone();
    clone.append(event(1)).await.unwrap();
    store.health().await.unwrap();
    let (waiting, ()) = tokio::join!(clone.append(event(2)), store.close());
    let waiting = waiting.is_ok();
    assert!(matches!(clone.append(event(3)).await, Err(Error::Closed)));
    assert!(matches!(clone.health().await, Err(Error::Closed)));
    let store = db.open().await;
    assert_eq!(store.audit_head().await.unwrap().seq, if waiting { 2 } else { 1 });
}
