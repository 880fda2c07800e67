//! What happens to operations when something fails under them.

use futures::future::join_all;
use serde_json::json;

use super::Operation;
use crate::audit::{Draft, Event};
use crate::ledger::Ledger;
use crate::statement::Statement;
use crate::{Database, Error, Store, Timestamp};

fn event(number: i64) -> Event {
    Event {
        at: Timestamp::from_milliseconds(number),
        actor: "test".to_owned(),
        action: "test.made".to_owned(),
        subject: number.to_string(),
        user_id: None,
        agent_id: None,
        // Large enough that few of them fit on a page.
        detail: json!({ "filler": "x".repeat(1000) }),
    }
}

/// Any statement, on the writer's own connection.
struct Raw(&'static str);

impl Operation for Raw {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        ledger.rows(Statement::new("do what a test wants", self.0)).await.map(drop)
    }
}

/// Appends, and fails then.
struct AppendAndFail;

impl Operation for AppendAndFail {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        ledger.append(Draft { event: event(-1), digest: None }).await?;
        Raw("SELECT * FROM nowhere").apply(ledger).await
    }
}

/// Takes away what the transaction needs at its end, so that it fails as a whole.
struct AppendAndBreak;

impl Operation for AppendAndBreak {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        ledger.append(Draft { event: event(-1), digest: None }).await?;
        Raw("DROP TABLE audit_head").apply(ledger).await
    }
}

async fn open(directory: &tempfile::TempDir) -> Store {
    Store::open(Database::Sqlite(directory.path().join("record.db"))).await.unwrap()
}

async fn assert_intact(store: &Store, entries: u64) {
    let verification = store.verify(|_| {}).await.unwrap();
    assert!(verification.is_intact(), "{:?}", verification.findings);
    assert_eq!(verification.checked, entries);
}

/// They wait for a lock that somebody has, so that they share a transaction when it is free.
#[tokio::test]
async fn one_that_fails_costs_the_others_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, other) = (open(&directory).await, open(&directory).await);
    let mut connection = crate::database::Connector::new(other.database()).unwrap().connect().await.unwrap();
    let lock = connection.begin().await.unwrap();
    let good = join_all((1..=20).map(|number| store.append(event(number))));
    let bad = join_all((0..5).map(|_| store.submit(AppendAndFail)));
    let release = async {
        // By now the writer has begun to wait, or has not: either way all are written.
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

/// SQLite's own limit on pages stands for the disk's.
#[tokio::test]
async fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    // As many as there are now: the limit cannot be lower.
    store.submit(Raw("PRAGMA max_page_count = 1")).await.unwrap();
    let mut acknowledged = 0;
    let refused = loop {
        match store.append(event(acknowledged)).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::DiskFull(_)) && refused.is_passing(), "{refused:?}");
    assert_intact(&store, u64::try_from(acknowledged).unwrap()).await;
    // The limit was the connection's, and a connection that failed is replaced: there is space again.
    store.append(event(acknowledged)).await.unwrap();
    assert_intact(&store, u64::try_from(acknowledged).unwrap() + 1).await;
}

/// Whoever asks after an answer is tried anew, however quickly they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_error_is_nobody_elses() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    for number in 1..=200 {
        let refused = store.submit(AppendAndBreak).await;
        assert!(matches!(refused, Err(Error::Database { .. })), "{refused:?}");
        assert_eq!(store.append(event(number)).await.unwrap(), number);
    }
}
