//! Faults of a PostgreSQL server.

use std::path::Path;

use ringwall_record::{Database, Error, Store};
use tokio::task::block_in_place;

use crate::cluster::Cluster;
use crate::database::{TestDatabase, assert_intact, key};
use crate::samples::event;

/// Needs a cluster of its own, because other tests use the shared one.
pub async fn server_restart_is_survived(_: TestDatabase) {
    // On this thread, because the server ends with the thread that started it.
    let cluster = block_in_place(Cluster::start).unwrap();
    let url = block_in_place(|| cluster.create_database("restarted"));
    let store = Store::open(Database::Postgres(url), Some(key())).await.unwrap();
    store.append(event(1)).await.unwrap();

    block_in_place(|| cluster.halt());
    for _ in 0..2 {
        let refused = store.append(event(2)).await.unwrap_err();
        assert!(matches!(refused, Error::Unreachable(_)) && refused.is_transient(), "{refused:?}");
    }
    let refused = store.health().await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");

    block_in_place(|| cluster.launch());
    assert_eq!(store.append(event(2)).await.unwrap(), 2);
    store.health().await.unwrap();
    // A restart between two operations fails neither.
    block_in_place(|| cluster.halt());
    block_in_place(|| cluster.launch());
    assert_eq!(store.append(event(3)).await.unwrap(), 3);
    assert_intact(&store).await;
}

pub async fn absent_server_is_reported(db: TestDatabase) {
    let Database::Postgres(url) = &db.database else { panic!("not PostgreSQL") };
    let nowhere = url.replace("ringwall-pg-", "nowhere-");
    let refused = Store::open(Database::Postgres(nowhere), Some(key())).await.unwrap_err();
    assert!(matches!(refused, Error::Unreachable(_)), "{refused:?}");
    let refused = Store::open(Database::Postgres("no url".to_owned()), Some(key())).await.unwrap_err();
    assert!(matches!(refused, Error::Url(_)), "{refused:?}");
    let secret = Database::Postgres("postgres://ann:hunter2@localhost/x".to_owned());
    assert!(!format!("{secret:?}").contains("hunter2"));
}

pub async fn backup_is_refused(db: TestDatabase) {
    let refused = db.open().await.backup(Path::new("/nowhere")).await.unwrap_err();
    assert!(matches!(refused, Error::BackupUnsupported) && refused.hint() == Some("use pg_dump"));
}
