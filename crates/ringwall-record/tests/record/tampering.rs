//! Verification finds entries and execs that were changed with SQL.

use ringwall_record::{FinalStatus, Finding, Store};

use crate::database::{TestDatabase, assert_intact, verify};
use crate::samples::{denied, ended, event, exec_id, running};

/// A store with five entries: 1 intent, 2 denied, 3 outcome, 4 and 5 events.
async fn fill(db: &TestDatabase) -> Store {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    store.intend(&denied(2)).await.unwrap();
    store.finish(&running(1), &ended(FinalStatus::Succeeded)).await.unwrap();
    store.append(event(4)).await.unwrap();
    store.append(event(5)).await.unwrap();
    assert_intact(&store).await;
    store
}

async fn findings(store: &Store) -> Vec<Finding> {
    verify(store).await.findings
}

pub async fn altered_entry_column_is_found(db: TestDatabase) {
    let other = db.bytes(7);
    let changes = [
        "at = at + 1".to_owned(),
        "actor = 'eve'".to_owned(),
        "action = 'door.closed'".to_owned(),
        "subject = 'door 5'".to_owned(),
        "user_id = NULL".to_owned(),
        "agent_id = ''".to_owned(),
        "detail = '{}'".to_owned(),
        format!("digest = {other}"),
        format!("previous = {other}"),
        format!("hash = {other}"),
    ];
    for (number, change) in (0..).zip(changes) {
        let db = db.another(number).await;
        let store = fill(&db).await;
        db.tamper(&format!("UPDATE audit SET {change} WHERE seq = 4")).await;
        let found = findings(&store).await;
        assert_eq!(found.first(), Some(&Finding::Altered { seq: 4 }), "{change}: {found:?}");
        if change.starts_with("hash") {
            assert_eq!(found[1..], [Finding::Unlinked { seq: 5 }], "{change}");
        } else {
            assert_eq!(found.len(), 1, "{change}: {found:?}");
        }
        store.close().await;
    }
    // A hash of one byte cannot be decoded.
    let store = fill(&db).await;
    let bytes = if db.is_sqlite() { "x'00'" } else { "decode('00', 'hex')" };
    db.tamper(&format!("UPDATE audit SET hash = {bytes} WHERE seq = 4")).await;
    assert_eq!(findings(&store).await, [Finding::Unreadable { seq: 4 }]);
}

pub async fn removed_entry_is_found(db: TestDatabase) {
    let store = fill(&db).await;
    db.tamper("DELETE FROM audit WHERE seq IN (3, 4)").await;
    let outcome = || Finding::OutcomeUnrecorded { exec_id: exec_id(1).to_string() };
    assert_eq!(findings(&store).await, [Finding::Removed { first: 3, last: 4 }, outcome()]);
    db.tamper("DELETE FROM audit WHERE seq = 1").await;
    let removed = |first, last| Finding::Removed { first, last };
    let unrecorded = Finding::ExecUnrecorded { exec_id: exec_id(1).to_string() };
    assert_eq!(findings(&store).await, [removed(1, 1), removed(3, 4), unrecorded, outcome()]);
}

pub async fn removed_tail_is_found(db: TestDatabase) {
    let store = fill(&db).await;
    db.tamper("DELETE FROM audit WHERE seq >= 4").await;
    assert_eq!(findings(&store).await, [Finding::TailRemoved { first: 4, last: 5 }]);
    // Later entries do not close the gap.
    store.append(event(6)).await.unwrap();
    assert_eq!(findings(&store).await, [Finding::Removed { first: 4, last: 5 }]);
    db.tamper("DELETE FROM audit").await;
    let all = findings(&store).await;
    assert_eq!(all[0], Finding::TailRemoved { first: 1, last: 6 }, "{all:?}");
}

pub async fn swapped_entries_are_found(db: TestDatabase) {
    let store = fill(&db).await;
    for change in ["seq = -4 WHERE seq = 4", "seq = 4 WHERE seq = 5", "seq = 5 WHERE seq = -4"] {
        db.tamper(&format!("UPDATE audit SET {change}")).await;
    }
    let found = findings(&store).await;
    assert_eq!(found[..2], [Finding::Moved { seq: 4, from: 5 }, Finding::Moved { seq: 5, from: 4 }], "{found:?}");
}

/// The attacker rewrites an entry with a correct hash, so only the link of the next entry is
/// broken.
pub async fn rewritten_entry_breaks_its_link(db: TestDatabase) {
    let other = db.another(0).await;
    let (store, source) = (fill(&db).await, other.open().await);
    source.intend(&running(1)).await.unwrap();
    source.intend(&denied(2)).await.unwrap();
    source.finish(&running(1), &ended(FinalStatus::Succeeded)).await.unwrap();
    source.append(ringwall_record::Event { actor: "eve".to_owned(), ..event(4) }).await.unwrap();
    let forged = source.audit_head().await.unwrap().hash;
    let bytes = if db.is_sqlite() { format!("x'{forged}'") } else { format!("decode('{forged}', 'hex')") };
    db.tamper(&format!("UPDATE audit SET actor = 'eve', hash = {bytes} WHERE seq = 4")).await;
    assert_eq!(findings(&store).await, [Finding::Unlinked { seq: 5 }]);
}

pub async fn altered_exec_is_found(db: TestDatabase) {
    let changes = [
        ("cmd = 'true'", 1, 1),
        ("args = '[]'", 1, 1),
        ("policy_snapshot = '{}'", 1, 1),
        ("user_id = 'eve'", 1, 1),
        ("exit_code = 1", 1, 3),
        ("status = 'FAILED'", 1, 3),
        ("cwd = '/'", 2, 2),
        ("error_reason = NULL", 2, 2),
        ("status = 'LOST'", 2, 2),
    ];
    for (number, (change, exec, seq)) in (0..).zip(changes) {
        let db = db.another(number).await;
        let store = fill(&db).await;
        let id = exec_id(exec).to_string();
        db.tamper(&format!("UPDATE sandbox_execs SET {change} WHERE exec_id = '{id}'")).await;
        assert_eq!(findings(&store).await, [Finding::ExecAltered { seq, exec_id: id }], "{change}");
        store.close().await;
    }
}

pub async fn planted_exec_is_found(db: TestDatabase) {
    let store = fill(&db).await;
    let planted = exec_id(99).to_string();
    db.tamper(&format!(
        "INSERT INTO sandbox_execs (seq, exec_id, user_id, agent_id, caller, project_id, backend, cmd, args, cwd, \
             env_keys, policy_snapshot, created_at, artifacts_path, status) \
             SELECT 4, '{planted}', user_id, agent_id, caller, project_id, backend, cmd, args, cwd, env_keys, \
             policy_snapshot, created_at, artifacts_path, 'RUNNING' FROM sandbox_execs WHERE seq = 1"
    ))
    .await;
    assert_eq!(findings(&store).await, [Finding::ExecUnrecorded { exec_id: planted }]);
}

pub async fn wrong_head_is_found(db: TestDatabase) {
    let store = fill(&db).await;
    db.tamper(&format!("UPDATE audit_head SET hash = {}", db.bytes(1))).await;
    assert_eq!(findings(&store).await, [Finding::HeadWrong { seq: 5 }, Finding::HeadForged]);
    db.tamper("UPDATE audit_head SET seq = 3").await;
    assert_eq!(findings(&store).await, [Finding::HeadWrong { seq: 5 }, Finding::HeadForged]);
}
