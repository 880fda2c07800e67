//! Tests of the writer: failing operations, failing commits, failing syncs.

use futures::future::join_all;
use serde_json::json;

use super::*;
use crate::audit::entry::tests::test_key;
use crate::audit::entry::{Draft, Event};
use crate::{Database, Store};

/// Large enough that few of them fit on a page.
fn event(number: i64) -> Event {
    Event { detail: json!({ "filler": "x".repeat(1000) }), ..crate::audit::entry::tests::event(number) }
}

/// Runs a statement on the writer's connection.
async fn run(ledger: &mut Ledger<'_>, text: &'static str) -> Result<(), Error> {
    ledger.rows(Statement::new("run a statement of a test", text)).await.map(drop)
}

fn raw(text: &'static str) -> impl Operation<()> {
    async move |ledger: &mut Ledger<'_>| run(ledger, text).await
}

/// Appends an entry, and then runs statements that make the operation or the commit fail.
fn append_and_run(texts: &'static [&'static str]) -> impl Operation<()> {
    async move |ledger: &mut Ledger<'_>| {
        ledger.append(Draft { event: event(-1), digest: None });
        for text in texts {
            run(ledger, text).await?;
        }
        Ok(())
    }
}

/// The statement itself fails.
const FAILING: &[&str] = &["SELECT * FROM nowhere"];
/// The INSERT of its entries fails, so the operation fails alone.
const WITHOUT_ENTRIES: &[&str] = &["DROP TABLE audit"];
/// The update of the head fails, so all operations fail.
const WITHOUT_HEAD: &[&str] = &["DROP TABLE audit_head"];
/// `COMMIT` itself fails at a deferred foreign key.
const WITHOUT_PARENT: &[&str] = &[
    "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
    "CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    "INSERT INTO child VALUES (1)",
];

fn purpose<T>(outcome: Result<T, Error>) -> &'static str {
    match outcome {
        Err(Error::Database { purpose, .. }) => purpose,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the write succeeded"),
    }
}

async fn open(directory: &tempfile::TempDir) -> Store {
    Store::open(Database::Sqlite(directory.path().join("record.db")), Some(test_key())).await.unwrap()
}

async fn assert_intact(store: &Store, entries: u64) {
    let verification = store.verify(|_| {}).await.unwrap();
    assert!(verification.is_intact(), "{:?}", verification.findings);
    assert_eq!(verification.checked, entries);
}

/// All operations queue up behind a lock of another connection, so that they share a transaction.
#[tokio::test]
async fn failing_operation_does_not_fail_others() {
    let directory = tempfile::tempdir().unwrap();
    let (store, other) = (open(&directory).await, open(&directory).await);
    let mut connection = crate::db::database::Connector::new(other.database()).unwrap().connect().await.unwrap();
    let signer = Signer::new(test_key());
    let lock = Ledger::begin(&mut connection, &signer).await.unwrap();
    let good = join_all((1..=20).map(|number| store.append(event(number))));
    let bad = join_all((0..5).map(|_| store.submit(append_and_run(FAILING))));
    let release = async {
        // The writer may or may not wait for the lock by now; the result is the same.
        tokio::task::yield_now().await;
        lock.rollback().await.unwrap();
    };
    let (good, bad, ()) = tokio::join!(good, bad, release);
    let mut numbers: Vec<i64> = good.into_iter().map(Result::unwrap).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    for outcome in bad {
        assert!(matches!(outcome, Err(Error::Database { .. })), "{outcome:?}");
    }
    assert_intact(&store, 20).await;
}

/// SQLite's page limit stands in for a full disk.
#[tokio::test]
async fn full_disk_keeps_acknowledged_entries() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    // SQLite raises the limit to the current size.
    store.submit(raw("PRAGMA max_page_count = 1")).await.unwrap();
    let mut acknowledged = 0;
    let refused = loop {
        match store.append(event(acknowledged)).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::DiskFull(_)) && refused.is_transient(), "{refused:?}");
    assert_intact(&store, u64::try_from(acknowledged).unwrap()).await;
    // The limit belonged to the connection, which was replaced after the failure.
    store.append(event(acknowledged)).await.unwrap();
    assert_intact(&store, u64::try_from(acknowledged).unwrap() + 1).await;
}

/// Repeated, because an operation could arrive while the writer answers the failed one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operation_after_an_error_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    for number in 1..=200 {
        assert_eq!(purpose(store.submit(append_and_run(WITHOUT_HEAD)).await), "store the end of the audit chain");
        assert_eq!(store.append(event(number)).await.unwrap(), number);
    }
}

/// The operations of each case share a transaction.
#[tokio::test]
async fn failed_insert_of_entries_fails_one_operation_and_failed_commit_all() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let mut writer = writer(&store);
    let (first, one) = job(Durability::Now, append_one());
    let (bad, two) = job(Durability::Now, append_and_run(WITHOUT_ENTRIES));
    let (second, three) = job(Durability::Now, append_one());
    assert!(writer.write_and_answer(vec![first, bad, second]).await.is_ok());
    assert_eq!((one.await.unwrap().unwrap(), three.await.unwrap().unwrap()), (1, 2));
    assert_eq!(purpose(two.await.unwrap()), "append to the audit chain");
    for (bad, stage) in [(WITHOUT_HEAD, "store the end of the audit chain"), (WITHOUT_PARENT, "commit")] {
        let ((good, _), (bad, _)) = (job(Durability::Now, append_one()), job(Durability::Now, append_and_run(bad)));
        let Err((unanswered, error)) = writer.write_and_answer(vec![good, bad]).await else {
            panic!("the write succeeded")
        };
        assert_eq!((unanswered.len(), purpose::<()>(Err(error))), (2, stage));
    }
    assert_eq!(store.append(event(3)).await.unwrap(), 3);
    assert_intact(&store, 3).await;
}

fn append_one() -> impl Operation<i64> {
    async |ledger: &mut Ledger<'_>| Ok(ledger.append(Draft { event: event(1), digest: None }))
}

type Answered<A> = oneshot::Receiver<Result<A, Error>>;

fn job<A: Send + 'static>(durability: Durability, operation: impl Operation<A>) -> (Box<dyn Job>, Answered<A>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(QueuedOperation { operation, durability, answer: None, reply }), answer)
}

/// A second writer of the same database, in this thread.
fn writer(store: &Store) -> Writer {
    let connector = Connector::new(store.database()).unwrap();
    let signer = Some(Signer::new(test_key()));
    Writer {
        connector,
        signer,
        connection: None,
        wal: None,
        sync_state: SyncState::Synced,
        failed: None,
        unindexed: 0,
        written: 0,
    }
}

#[tokio::test]
async fn unsynced_commit_is_synced_alone_or_with_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let mut writer = writer(&store);
    let wal = writer.connector.wal_path().unwrap();
    let one = |durability| job(durability, append_one()).0;
    for payment in ["forced", "at once", "together"] {
        assert!(writer.write(&mut [one(Durability::Soon)]).await.is_ok());
        assert_eq!(writer.sync_state, SyncState::Pending, "{payment}");
        match payment {
            "forced" => writer.sync().unwrap(),
            "at once" => assert!(writer.write(&mut [one(Durability::Now)]).await.is_ok()),
            _ => assert!(writer.write(&mut [one(Durability::Soon), one(Durability::Now)]).await.is_ok()),
        }
        assert_eq!(writer.sync_state, SyncState::Synced, "{payment}");
    }
    assert!(wal.exists(), "there is a WAL to sync");
    // A change without an entry must be synced too; a query need not.
    let (asks, _) = job(Durability::Now, raw("SELECT 1"));
    assert!(writer.write(&mut [asks]).await.is_ok());
    assert_eq!((writer.sync_state, writer.wal.is_some()), (SyncState::Synced, true));
    let (changes, _) = job(Durability::Soon, raw("UPDATE audit_head SET seq = seq"));
    assert!(writer.write(&mut [changes]).await.is_ok());
    assert_eq!(writer.sync_state, SyncState::Pending);
    assert_intact(&store, 6).await;
}

/// The failed commit is not acknowledged, and no further one is written to the WAL.
#[tokio::test]
async fn failed_wal_sync_stops_the_writer() {
    for durability in [Durability::Now, Durability::Soon] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(&directory).await;
        let mut writer = writer(&store);
        let wal = writer.connector.wal_path().unwrap();
        let length = || std::fs::metadata(&wal).map_or(0, |wal| wal.len());
        let one = |durability| job(durability, append_one()).0;
        assert!(writer.write(&mut [one(Durability::Now)]).await.is_ok() && writer.wal.is_some());
        // `fdatasync` of a pipe fails.
        let (end, _other) = std::io::pipe().unwrap();
        writer.wal = Some(File::from(std::os::fd::OwnedFd::from(end)));
        match (writer.write(&mut [one(durability)]).await, durability) {
            (Err(Failure::Transaction(Error::LogFailed(_))), Durability::Now) => {}
            (Ok(()), Durability::Soon) => assert!(matches!(writer.sync(), Err(Error::LogFailed(_)))),
            _ => panic!("{durability:?}"),
        }
        // Still rejected with a new descriptor, for which the kernel reports no error.
        writer.wal = None;
        let before = length();
        for durability in [Durability::Now, Durability::Soon] {
            let refused = writer.write(&mut [one(durability)]).await;
            assert!(matches!(refused, Err(Failure::Transaction(Error::LogFailed(_)))));
        }
        writer.unindexed = INDEX_BATCH;
        writer.update_list_indexes().await;
        assert_eq!((writer.unindexed, length()), (INDEX_BATCH, before));
        assert_intact(&store, 2).await;
        // After a restart.
        drop(writer);
        store.close().await;
        assert_ne!(length(), 0);
        let store = open(&directory).await;
        assert_eq!(length(), 0, "the WAL was checkpointed");
        store.append(event(3)).await.unwrap();
        assert_intact(&store, 3).await;
    }
}

#[tokio::test]
async fn lists_show_each_entry_once_before_and_after_it_is_filed() {
    use crate::page::{Limit, Scope};
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let mut writer = writer(&store);
    let filter = || crate::AuditFilter { actor: Some("test".to_owned()), ..crate::AuditFilter::everything(Scope::All) };
    let count = async || store.audit(&filter(), Limit::nearest(1000), None).await.unwrap().items.len();
    let left = async || {
        let text = "SELECT count(*) AS count FROM audit WHERE filed = 0";
        let row = store.readers().row(Statement::new("count", text)).await.unwrap();
        row.unwrap().get::<i64>("count").unwrap()
    };
    for number in 1..=3 {
        assert!(writer.write(&mut [job(Durability::Now, append_one()).0]).await.is_ok());
        assert_eq!((writer.unindexed, left().await, count().await), (1, 1, number));
        writer.update_list_indexes().await;
        assert_eq!((writer.unindexed, left().await, count().await), (0, 0, number));
    }
    // The store's own writer files its entries.
    for number in 0..i64::try_from(INDEX_BATCH).unwrap() {
        store.append(event(number)).await.unwrap();
    }
    store.close().await;
    let store = open(&directory).await;
    let all = store.audit(&filter(), Limit::nearest(1000), None).await.unwrap().items.len();
    assert_eq!(all, 3 + usize::try_from(INDEX_BATCH).unwrap());
    let text = "SELECT count(*) AS count FROM audit WHERE filed = 0";
    let row = store.readers().row(Statement::new("count", text)).await.unwrap().unwrap();
    assert!(row.get::<i64>("count").unwrap() < i64::try_from(INDEX_BATCH).unwrap());
    assert_intact(&store, 3 + INDEX_BATCH).await;
}
