//! The audit chain: its entries, lists and exports, and that entries cannot be changed.

use futures::TryStreamExt;
use futures::future::join_all;
use ringwall_record::{AuditFilter, Digest, FinalStatus, Limit, Scope, Store};
use serde_json::Value as Json;

use crate::database::{TestDatabase, assert_intact, verify};
use crate::samples::{at, denied, ended, event, exec_id, running};

async fn actions(store: &Store) -> Vec<(String, String)> {
    let page = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(1000), None).await.unwrap();
    page.items.into_iter().rev().map(|entry| (entry.action, entry.subject)).collect()
}

pub async fn each_change_of_an_exec_appends_one_entry(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    store.intend(&denied(2)).await.unwrap();
    store.intend(&running(3)).await.unwrap();
    store.finish(&running(1), &ended(FinalStatus::Succeeded)).await.unwrap();
    store.finish(&running(1), &ended(FinalStatus::Failed)).await.unwrap();
    store.mark_unfinished_lost(at(1)).await.unwrap();
    store.append(event(7)).await.unwrap();
    let expected = [
        ("exec.intent", exec_id(1).to_string()),
        ("exec.denied", exec_id(2).to_string()),
        ("exec.intent", exec_id(3).to_string()),
        ("exec.outcome", exec_id(1).to_string()),
        ("exec.lost", exec_id(3).to_string()),
        ("door.opened", "door 7".to_owned()),
    ];
    assert_eq!(actions(&store).await, expected.map(|(action, subject)| (action.to_owned(), subject)));
    let verification = verify(&store).await;
    assert!(verification.is_intact(), "{:?}", verification.findings);
    assert_eq!((verification.checked, verification.head), (6, store.audit_head().await.unwrap()));
}

pub async fn entries_are_listed_and_exported(db: TestDatabase) {
    let store = db.open().await;
    join_all((1..=600).map(|number| store.append(event(number)))).await;
    store.intend(&running(1)).await.unwrap();

    let lines: Vec<String> = store.export(1).try_collect().await.unwrap();
    assert_eq!(lines.len(), 601);
    let mut previous = Digest::ZERO.to_string();
    for (index, line) in lines.iter().enumerate() {
        let entry: Json = serde_json::from_str(line.strip_suffix('\n').unwrap()).unwrap();
        assert_eq!(entry["seq"], Json::from(index + 1));
        assert_eq!(entry["previous"], Json::from(previous));
        previous = entry["hash"].as_str().unwrap().to_owned();
    }
    assert_eq!(previous, store.audit_head().await.unwrap().hash.to_string());
    assert_eq!(store.export(600).try_collect::<Vec<_>>().await.unwrap(), lines[599..]);

    let filter = AuditFilter { action: Some("exec.intent".to_owned()), ..AuditFilter::everything(Scope::All) };
    let intents = store.audit(&filter, Limit::nearest(10), None).await.unwrap();
    assert_eq!(intents.items.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [601]);
    let filter = AuditFilter { subject: Some("door 5".to_owned()), ..AuditFilter::everything(Scope::All) };
    assert_eq!(store.audit(&filter, Limit::nearest(10), None).await.unwrap().items.len(), 1);
    let agent = Scope::Agent("ann".parse().unwrap(), "helper".parse().unwrap());
    for (scope, count) in
        [(agent, 1), (Scope::User("ann".parse().unwrap()), 601), (Scope::User("bob".parse().unwrap()), 0)]
    {
        let page = store.audit(&AuditFilter::everything(scope), Limit::nearest(1000), None).await.unwrap();
        assert_eq!(page.items.len(), count);
    }
    let mut page = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(400), None).await.unwrap();
    assert_eq!((page.items[0].seq, page.items[399].seq), (601, 202));
    page = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(400), page.next).await.unwrap();
    assert_eq!((page.items.len(), page.items[0].seq, page.next), (201, 201, None));
}

pub async fn entries_cannot_be_changed_or_removed(db: TestDatabase) {
    let store = db.open().await;
    store.append(event(1)).await.unwrap();
    for text in ["UPDATE audit SET actor = 'eve'", "DELETE FROM audit", "DELETE FROM audit WHERE seq = 1"] {
        let refused = db.execute(text).await.unwrap_err().to_string();
        assert!(refused.contains("audit entries are"), "{text}: {refused}");
    }
    if !db.is_sqlite() {
        let refused = db.execute("TRUNCATE audit").await.unwrap_err().to_string();
        assert!(refused.contains("audit entries are"), "{refused}");
    }
    assert_intact(&store).await;
}

/// Two stores with a writer each stand in for two processes.
pub async fn concurrent_writers_share_one_chain(db: TestDatabase) {
    let (left, right) = (db.open().await, db.open().await);
    let writes = (0..200).map(|number| if number % 2 == 0 { &left } else { &right }.append(event(number)));
    let mut numbers: Vec<i64> = join_all(writes).await.into_iter().map(Result::unwrap).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
    assert_intact(&left).await;
}
