//! Retention: old rows are removed, and the rest still verifies.

use futures::future::join_all;
use ringwall_record::{AuditFilter, Error, ExecListFilter, FinalStatus, Finding, Keep, Limit, Scope, Store};

use crate::database::{TestDatabase, assert_intact, verify};
use crate::samples::{at, ended, event, exec_id, running};

async fn fill(db: &TestDatabase, count: i64) -> Store {
    let store = db.open().await;
    for outcome in join_all((1..=count).map(|number| store.append(event(number)))).await {
        outcome.unwrap();
    }
    store
}

/// Enough entries for several steps.
pub async fn newest_entries_are_kept(db: TestDatabase) {
    let store = fill(&db, 4_500).await;
    assert_eq!(store.prune_audit(Keep::Newest(10_000), at(0), "owner").await.unwrap(), 0);
    assert_eq!(store.prune_audit(Keep::Newest(100), at(0), "owner").await.unwrap(), 4_400);
    let verification = verify(&store).await;
    assert!(verification.is_intact(), "{:?}", verification.findings);
    // The 100 newest entries, and the entry about the removal.
    assert_eq!((verification.start.seq, verification.checked), (4_400, 101));
    let refused = db.execute("DELETE FROM audit WHERE seq = 4401").await.unwrap_err().to_string();
    assert!(refused.contains("retention alone"), "{refused}");
    store.append(event(1)).await.unwrap();
    assert_intact(&store).await;
    assert_eq!(store.prune_audit(Keep::Newest(0), at(0), "owner").await.unwrap(), 102);
    assert_intact(&store).await;
    let columns = "at, actor, action, subject, user_id, agent_id, detail, digest, previous, hash";
    db.tamper(&format!("INSERT INTO audit (seq, {columns}) SELECT 7, {columns} FROM audit")).await;
    assert_eq!(verify(&store).await.findings, [Finding::Planted { seq: 7 }]);
    db.tamper("DELETE FROM audit WHERE seq = 7").await;
    db.tamper("UPDATE audit SET actor = 'eve'").await;
    let found = verify(&store).await.findings;
    assert!(matches!(found[..], [Finding::Altered { .. }, Finding::StartRemoved { .. }]), "{found:?}");
    db.tamper(&format!("UPDATE audit_checkpoint SET hash = {}", db.bytes(3))).await;
    assert!(!verify(&store).await.is_intact());
}

/// Clocks jump: entries after the first one that is young enough are kept, even with an older time.
pub async fn entries_since_a_time_are_kept(db: TestDatabase) {
    let store = fill(&db, 0).await;
    for moment in [100, 200, 900, 300, 901] {
        store.append(event(moment)).await.unwrap();
    }
    assert_eq!(store.prune_audit(Keep::Since(at(500)), at(1_000), "owner").await.unwrap(), 2);
    assert_eq!(store.prune_audit(Keep::Since(at(500)), at(1_000), "owner").await.unwrap(), 0);
    let verification = verify(&store).await;
    assert!(verification.is_intact());
    assert_eq!((verification.start.seq, verification.checked), (2, 4));
}

pub async fn broken_chain_is_not_pruned(db: TestDatabase) {
    let store = fill(&db, 10).await;
    db.tamper("DELETE FROM audit WHERE seq = 5").await;
    let outcome = store.prune_audit(Keep::Newest(5), at(0), "owner").await;
    assert!(matches!(outcome, Err(Error::ChainBroken { seq: 5 })), "{outcome:?}");
    assert_eq!(verify(&store).await.findings, [Finding::Removed { first: 5, last: 5 }]);
}

pub async fn ended_execs_are_removed(db: TestDatabase) {
    let store = db.open().await;
    for number in 0..20 {
        store.intend(&running(number)).await.unwrap();
        if number >= 5 {
            let ended_at = at(i64::try_from(number).unwrap() * 100);
            store
                .finish(&running(number), &ringwall_record::ExecOutcome { ended_at, ..ended(FinalStatus::Failed) })
                .await
                .unwrap();
        }
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.oldest_execs(Limit::nearest(7), cursor).await.unwrap();
        seen.extend(page.items.into_iter().map(|one| one.exec_id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..20).map(exec_id).collect::<Vec<_>>());
    // All execs are named; those that ended later or not at all are kept.
    assert_eq!(store.prune_execs(seen.clone(), at(1_000), at(5_000), "owner").await.unwrap(), 5);
    assert_eq!(store.prune_execs(seen, at(1_000), at(5_000), "owner").await.unwrap(), 0);
    let left = store.list(&ExecListFilter::everything(Scope::All), Limit::nearest(100), None).await.unwrap().items;
    let numbers = (10..20).rev().chain((0..5).rev()).map(exec_id);
    assert_eq!(left.into_iter().map(|one| one.exec_id).collect::<Vec<_>>(), numbers.collect::<Vec<_>>());
    let pruned = AuditFilter { action: Some("execs.pruned".to_owned()), ..AuditFilter::everything(Scope::All) };
    let entries = store.audit(&pruned, Limit::nearest(10), None).await.unwrap().items;
    assert_eq!(entries.len(), 1, "no entry about a removal of nothing");
    assert!(entries[0].detail.contains("\"removed\":5"), "{}", entries[0].detail);
    assert_intact(&store).await;
}
