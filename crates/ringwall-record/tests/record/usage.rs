//! Recorded bytes of large commands, per workspace.

use ringwall_record::{FinalStatus, NewApproval, NewExec, Settled, SettledStatus, Store};
use serde_json::json;

use crate::approvals::{answer, approval_id, question};
use crate::database::{TestDatabase, assert_intact};
use crate::samples::{at, ended, exec_id, running};

const LARGE: usize = 100_000;

fn large(number: u64) -> NewExec {
    NewExec { args: vec!["x".repeat(LARGE)], ..running(number) }
}

async fn recorded(store: &Store) -> usize {
    let bytes = store.recorded_bytes(&"ann".parse().unwrap(), &"helper".parse().unwrap()).await.unwrap();
    usize::try_from(bytes).unwrap()
}

pub async fn large_commands_and_code_count_until_retention_removes_them(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    assert_eq!(recorded(&store).await, 0, "small commands do not count");
    store.intend(&large(2)).await.unwrap();
    assert!(store.intend(&large(2)).await.is_err(), "the id is taken");
    // Stored as JSON: two brackets and two quotes more.
    assert_eq!(recorded(&store).await, LARGE + 4);
    let asked = NewApproval { code: Some("y".repeat(LARGE)), ..question(2) };
    store.open_approval(asked, json!({})).await.unwrap();
    assert_eq!(recorded(&store).await, 2 * LARGE + 4);
    let (user, agent) = ("ann".parse().unwrap(), "helper".parse().unwrap());
    assert_eq!(store.all_recorded_bytes().await.unwrap(), [(user, agent, 2 * LARGE as u64 + 4)]);
    let others = store.recorded_bytes(&"bob".parse().unwrap(), &"helper".parse().unwrap()).await.unwrap();
    assert_eq!(others, 0);
    let settled = store.settle_approval(&approval_id(2), answer(SettledStatus::Denied, "ann")).await.unwrap();
    assert!(matches!(settled, Settled::Recorded(_)));
    store.finish(&large(2), &ended(FinalStatus::Succeeded)).await.unwrap();
    assert_eq!(store.prune_execs(vec![exec_id(2)], at(9_000), at(9_000), "retention").await.unwrap(), 1);
    assert_eq!(recorded(&store).await, 0);
    assert_intact(&store).await;
}
