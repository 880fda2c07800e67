//! Settings, whose saves name the version that they change, and the host user ids of agents.

use futures::future::join_all;
use ringwall_record::{Error, Saved};
use serde_json::json;

use crate::database::{TestDatabase, assert_intact};
use crate::samples::at;

pub async fn settings_based_on_stale_version_are_refused(db: TestDatabase) {
    let store = db.open().await;
    assert_eq!(store.settings().await.unwrap(), None);
    let first = json!({ "sandbox": { "limits": { "pids": 5 } } });
    let conflict = store.save_settings(&first, 1, at(1), "ann").await.unwrap();
    assert_eq!(conflict, Saved::Conflict { current: 0 });
    assert_eq!(store.save_settings(&first, 0, at(1), "ann").await.unwrap(), Saved::Recorded { version: 1 });
    let second = json!({});
    let both = join_all((0..8).map(|_| store.save_settings(&second, 1, at(2), "bob"))).await;
    let saved = both.iter().filter(|answer| matches!(answer, Ok(Saved::Recorded { version: 2 }))).count();
    let refused = both.iter().filter(|answer| matches!(answer, Ok(Saved::Conflict { current: 2 }))).count();
    assert_eq!((saved, refused), (1, 7));
    let settings = store.settings().await.unwrap().unwrap();
    assert_eq!((settings.version, settings.document, settings.saved_at), (2, second, at(2)));
    assert_eq!(settings.saved_by, "bob");
    assert_eq!(store.audit_head().await.unwrap().seq, 2);
    assert_intact(&store).await;
}

pub async fn host_uid_of_agent_is_permanent(db: TestDatabase) {
    let store = db.open().await;
    let name = |number: usize| format!("agent-{}", number % 10).parse().unwrap();
    let agents: Vec<ringwall_ids::AgentId> = (0..40).map(name).collect();
    let user = "ann".parse().unwrap();
    let answers = join_all(agents.iter().map(|agent| store.host_uid(&user, agent, 1000..=1009, at(1)))).await;
    let uids: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
    let mut distinct = uids[..10].to_vec();
    distinct.sort_unstable();
    assert_eq!(distinct, (1000..1010).collect::<Vec<_>>());
    assert!(uids.chunks(10).all(|again| again == &uids[..10]), "{uids:?}");
    store.close().await;
    let store = db.open().await;
    // The same id even with another range.
    assert_eq!(store.host_uid(&user, &agents[3], 5..=6, at(1)).await.unwrap(), uids[3]);
    assert_intact(&store).await;
}

pub async fn exhausted_uid_range_is_reported(db: TestDatabase) {
    let store = db.open().await;
    let user = "ann".parse().unwrap();
    let take = async |agent: &str, range| store.host_uid(&user, &agent.parse().unwrap(), range, at(1)).await;
    assert_eq!(take("a", 10..=10).await.unwrap(), 10);
    assert!(matches!(take("b", 10..=10).await, Err(Error::IdentitiesExhausted { first: 10, last: 10 })));
    assert_eq!(take("b", 12..=12).await.unwrap(), 12);
    // A larger range around the assigned ids: the gaps are used.
    let mut taken = Vec::new();
    for agent in ["c", "d"] {
        taken.push(take(agent, 9..=12).await.unwrap());
    }
    assert_eq!(taken, [9, 11]);
    assert!(matches!(take("e", 9..=12).await, Err(Error::IdentitiesExhausted { .. })));
    assert_eq!(take("e", 0..=u32::MAX).await.unwrap(), 13);
}
