//! Recorded connections of execs, and permanently allowed hosts.

use ringwall_ids::UserId;
use ringwall_record::{
    Answer, ApprovalKind, AuditFilter, ExecNetwork, FinalStatus, Limit, NewApproval, Remembering, Scope, Settled,
    SettledStatus,
};
use serde_json::{Value, json};

use crate::approvals::{answer, question};
use crate::database::{TestDatabase, assert_intact};
use crate::samples::{at, ended, exec_id, running};

fn network(host: &str) -> ExecNetwork {
    ExecNetwork { connections: json!([{ "host": host, "port": 443 }]), left_out: 3 }
}

pub async fn later_connections_are_added_and_removed_with_exec(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    let owner = || ("ann".parse().unwrap(), "helper".parse().unwrap());
    assert_eq!(store.network(&exec_id(1)).await.unwrap(), None);
    store.record_network(&exec_id(1), owner(), network("a.com"), at(5)).await.unwrap();
    store.record_network(&exec_id(1), owner(), network("b.com"), at(6)).await.unwrap();
    let both = json!([{ "host": "a.com", "port": 443 }, { "host": "b.com", "port": 443 }]);
    let both = ExecNetwork { connections: both, left_out: 6 };
    assert_eq!(store.network(&exec_id(1)).await.unwrap(), Some(both), "the first one was replaced");
    let filter = AuditFilter { action: Some("exec.network".to_owned()), ..AuditFilter::everything(Scope::All) };
    let entries = store.audit(&filter, Limit::nearest(10), None).await.unwrap().items;
    assert_eq!(entries.len(), 2);
    assert!(entries[0].detail.contains("\"left_out\":6"), "{}", entries[0].detail);
    let most = ExecNetwork { connections: vec![json!({}); ExecNetwork::MAX_CONNECTIONS].into(), left_out: 0 };
    store.record_network(&exec_id(1), owner(), most, at(7)).await.unwrap();
    let kept = store.network(&exec_id(1)).await.unwrap().unwrap();
    assert_eq!((kept.connections.as_array().unwrap().len(), kept.left_out), (ExecNetwork::MAX_CONNECTIONS, 8));
    store.finish(&running(1), &ended(FinalStatus::Succeeded)).await.unwrap();
    assert_eq!(store.prune_execs(vec![exec_id(1)], at(9999), at(9999), "retention").await.unwrap(), 1);
    assert_eq!(store.network(&exec_id(1)).await.unwrap(), None);
    assert_intact(&store).await;
}

pub async fn hosts_are_allowed_once_and_removed(db: TestDatabase) {
    let store = db.open().await;
    let [ann, bob] = ["ann", "bob"].map(|user| user.parse::<UserId>().unwrap());
    for (number, user, by) in [(1, &ann, "t_1"), (2, &ann, "t_2"), (3, &bob, "t_1")] {
        let asked = NewApproval { kind: ApprovalKind::Network, ..question(number) };
        store.open_approval(asked.clone(), Value::Null).await.unwrap();
        let remembered = Remembering::Hosts { user: user.clone(), entries: vec!["a.com:443".to_owned()] };
        let answer = Answer { remembered, ..answer(SettledStatus::Remembered, by) };
        assert!(matches!(store.settle_approval(&asked.id, answer).await.unwrap(), Settled::Recorded(_)));
    }
    let of_ann = store.allowed_hosts(&Scope::User(ann)).await.unwrap();
    let [found] = of_ann.as_slice() else { panic!("{of_ann:?}") };
    let id = found.id;
    assert_eq!((found.entry.as_str(), found.created_by.as_str()), ("a.com:443", "t_1"));
    let all = store.allowed_hosts(&Scope::All).await.unwrap();
    let [_, other] = all.as_slice() else { panic!("{all:?}") };
    let other = other.id;
    assert_eq!(store.forget_host(id, at(4), "owner").await.unwrap().as_ref(), Some(found));
    assert_eq!(store.forget_host(id, at(5), "owner").await.unwrap(), None);
    let left = store.allowed_hosts(&Scope::All).await.unwrap();
    assert_eq!(left.iter().map(|host| host.id).collect::<Vec<_>>(), [other]);
    let entries = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(20), None).await.unwrap().items;
    let of_hosts = entries.iter().filter(|entry| entry.action.starts_with("net.host."));
    assert_eq!(of_hosts.count(), 3, "two allowed, one forgotten");
    assert_intact(&store).await;
}
