//! What happens to operations when something fails under them.

use futures::future::join_all;
use serde_json::json;

use super::*;
use crate::audit::{Draft, Event};
use crate::statement::Statement;
use crate::{Database, Store, Timestamp};

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
        ledger.append(Draft { event: event(-1), digest: None });
        Raw("SELECT * FROM nowhere").apply(ledger).await
    }
}

/// Does what makes the transaction fail at its end.
struct AppendAndBreak(&'static [&'static str]);

/// Takes away what its own entry needs, so that it fails alone.
const WITHOUT_ENTRIES: AppendAndBreak = AppendAndBreak(&["DROP TABLE audit"]);
/// Takes away what everybody needs.
const WITHOUT_HEAD: AppendAndBreak = AppendAndBreak(&["DROP TABLE audit_head"]);
/// Leaves what only the commit notices.
const WITHOUT_PARENT: AppendAndBreak = AppendAndBreak(&[
    "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
    "CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    "INSERT INTO child VALUES (1)",
]);

impl Operation for AppendAndBreak {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        ledger.append(Draft { event: event(-1), digest: None });
        for text in self.0 {
            Raw(text).apply(ledger).await?;
        }
        Ok(())
    }
}

fn purpose<T>(outcome: Result<T, Error>) -> &'static str {
    match outcome {
        Err(Error::Database { purpose, .. }) => purpose,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was written"),
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
    let lock = Ledger::begin(&mut connection, None).await.unwrap();
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
        assert_eq!(purpose(store.submit(WITHOUT_HEAD).await), "store the end of the audit chain");
        assert_eq!(store.append(event(number)).await.unwrap(), number);
    }
}

/// On one thread all of them wait in the queue before the writer looks, so that they share a transaction.
#[tokio::test]
async fn what_fails_at_the_end_fails_whom_it_concerns() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let (first, bad, second) =
        tokio::join!(store.append(event(1)), store.submit(WITHOUT_ENTRIES), store.append(event(2)));
    assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
    assert_eq!(purpose(bad), "append to the audit chain");
    for (bad, stage) in [(WITHOUT_HEAD, "store the end of the audit chain"), (WITHOUT_PARENT, "commit")] {
        let (good, bad) = tokio::join!(store.append(event(3)), store.submit(bad));
        assert_eq!((purpose(good), purpose(bad)), (stage, stage));
    }
    assert_eq!(store.append(event(3)).await.unwrap(), 3);
    assert_intact(&store, 3).await;
}

/// Entries wait in memory for the commit; whoever asks which are old has to see those too.
#[tokio::test]
async fn what_was_appended_a_moment_ago_is_not_pruned() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    for number in 1..=3 {
        store.append(event(number)).await.unwrap();
    }
    let since = Timestamp::from_milliseconds(4);
    let (appended, removed) =
        tokio::join!(store.append(event(4)), store.prune_audit(crate::Keep::Since(since), since, "test"));
    assert_eq!((appended.unwrap(), removed.unwrap()), (4, 3));
    assert_intact(&store, 2).await;
}

/// However many entries a transaction has, all are written, and the texts that are kept prepared stay few.
#[tokio::test]
async fn batches_of_any_size_share_their_texts() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let mut connection = crate::database::Connector::new(store.database()).unwrap().connect().await.unwrap();
    for count in 0..=70 {
        let mut ledger = Ledger::begin(&mut connection, None).await.unwrap();
        for number in 0..count {
            ledger.append(Draft { event: event(number), digest: None });
        }
        assert!(ledger.commit().await.is_ok());
    }
    let crate::driver::Connection::Sqlite(connection) = connection else { unreachable!() };
    // One that begins, one that only commits, five sizes of insertions with a commit, and four without: a single entry is
    // always the last.
    assert_eq!(sqlx::Connection::cached_statements_size(connection.as_ref()), 1 + 1 + 5 + 4);
    assert_intact(&store, (0..=70).sum()).await;
}

/// One row, which may be on disk later, or must be there at once.
struct Sooner(Durability);

impl Operation for Sooner {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        ledger.append(Draft { event: event(1), digest: None });
        Ok(())
    }

    fn at_once(&self, next: i64) -> Option<(AtOnce, ())> {
        let text = "INSERT INTO settings (version, document, saved_at, saved_by) VALUES ($1, '{}', 0, 'test')";
        let statement = Statement::new("do what a test wants", text).bind(next);
        Some((AtOnce { statement, draft: Draft { event: event(1), digest: None } }, ()))
    }

    fn durability(&self) -> Durability {
        self.0
    }
}

fn job(durability: Durability) -> Box<dyn Job> {
    let (reply, _) = oneshot::channel();
    Box::new(Waiting { operation: Sooner(durability), answer: None, reply })
}

/// What may be later is owed until it is forced, or until something is committed that must be there at once.
#[tokio::test]
async fn what_is_owed_is_paid() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let connector = Connector::new(store.database()).unwrap();
    let log = connector.log().unwrap();
    let mut writer = Writer { connector, connection: None, head: None, durability: Durability::Now, debt: Debt::None };
    // Step by step, because the end of the chain is not known yet; and on a connection where all are there at once.
    assert!(writer.write(&mut [job(Durability::Soon)]).await.is_ok());
    assert_eq!((writer.debt, writer.durability), (Debt::None, Durability::Now));
    for payment in ["forced", "at once", "together"] {
        assert!(writer.write(&mut [job(Durability::Soon)]).await.is_ok());
        assert_eq!((writer.debt, writer.durability), (Debt::Owed, Durability::Soon), "{payment}");
        match payment {
            "forced" => writer.pay().await,
            "at once" => assert!(writer.write(&mut [job(Durability::Now)]).await.is_ok()),
            _ => assert!(writer.write(&mut [job(Durability::Soon), job(Durability::Now)]).await.is_ok()),
        }
        assert_eq!(writer.debt, Debt::None, "{payment}");
    }
    assert!(log.exists(), "there is something to force");
    // What has to be there at once and then has nothing to write pays for nobody.
    assert!(writer.write(&mut [job(Durability::Soon)]).await.is_ok());
    let (reply, _) = oneshot::channel();
    let nothing: Box<dyn Job> = Box::new(Waiting { operation: Raw("SELECT 1"), answer: None, reply });
    assert!(writer.write(&mut [nothing]).await.is_ok());
    assert_eq!((writer.debt, writer.durability), (Debt::Owed, Durability::Now));
    assert_intact(&store, 8).await;
}
