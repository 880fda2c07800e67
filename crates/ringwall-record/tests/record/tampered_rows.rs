//! Verification finds rows that were changed past the store. Each record is intact before the
//! change.

use ringwall_record::{
    Author, AuthorRules, FinalStatus, Finding, Holder, Keep, NewPath, Note, PathScope, Remembering, RulesAuthor,
    SessionKey, SessionRules, Settled, SettledStatus, Store, Switch, UserRules,
};
use serde_json::json;

use crate::approvals::{answer, approval_id, question};
use crate::database::{TestDatabase, assert_intact, verify};
use crate::samples::{at, event, exec_id, queued};
use crate::tokens::{token, token_id};

/// Checks that the record is intact, executes the change, and returns the findings.
async fn findings_after(db: &TestDatabase, store: &Store, change: &str) -> Vec<Finding> {
    assert_intact(store).await;
    db.tamper(change).await;
    verify(store).await.findings
}

async fn open_approval(db: &TestDatabase) -> Store {
    let store = db.open().await;
    store.open_approval(question(1), json!({})).await.unwrap();
    store
}

fn altered(table: &'static str, key: &str, seq: i64) -> Finding {
    Finding::RowAltered { table, key: key.to_owned(), seq }
}

fn unrecorded(table: &'static str, key: &str) -> Finding {
    Finding::RowUnrecorded { table, key: key.to_owned() }
}

fn removed(table: &'static str, key: &str, seq: i64) -> Finding {
    Finding::RowRemoved { table, key: key.to_owned(), seq }
}

pub async fn approval_answered_by_sql_is_found(db: TestDatabase) {
    let store = open_approval(&db).await;
    let change = "UPDATE approvals SET status = 'approved', answered_at = 5, answered_by = 'eve'";
    let id = approval_id(1).to_string();
    assert_eq!(findings_after(&db, &store, change).await, [Finding::ApprovalUnrecorded { id }]);
}

pub async fn approval_with_changed_answer_is_found(db: TestDatabase) {
    let store = open_approval(&db).await;
    let settled = store.settle_approval(&approval_id(1), answer(SettledStatus::Denied, "ann")).await.unwrap();
    assert!(matches!(settled, Settled::Recorded(_)));
    let found = findings_after(&db, &store, "UPDATE approvals SET status = 'approved'").await;
    let id = approval_id(1).to_string();
    let altered = Finding::ApprovalAltered { seq: 2, id: id.clone() };
    assert_eq!(found, [altered, Finding::ApprovalUnrecorded { id }]);
}

pub async fn approval_with_changed_question_is_found(db: TestDatabase) {
    let store = open_approval(&db).await;
    let found = findings_after(&db, &store, "UPDATE approvals SET command = 'rm -rf /'").await;
    assert_eq!(found, [Finding::ApprovalAltered { seq: 1, id: approval_id(1).to_string() }]);
}

pub async fn planted_approval_is_found(db: TestDatabase) {
    let store = open_approval(&db).await;
    store.append(event(2)).await.unwrap();
    let columns = "kind, status, exec_id, user_id, agent_id, session_id, command, requested_paths, blocked_paths, \
                   risk_level, patterns, digest, asked_by, created_at, expires_at";
    let plant =
        format!("INSERT INTO approvals (seq, id, {columns}) SELECT 2, 'a_00000000000000ff', {columns} FROM approvals");
    let found = findings_after(&db, &store, &plant).await;
    assert_eq!(found, [Finding::ApprovalUnrecorded { id: "a_00000000000000ff".to_owned() }]);
}

async fn with_token(db: &TestDatabase) -> Store {
    let store = db.open().await;
    store.create_token(token(1, Holder::Operator)).await.unwrap();
    store
}

pub async fn planted_owner_token_is_found(db: TestDatabase) {
    let store = with_token(&db).await;
    let plant = format!(
        "INSERT INTO tokens (seq, id, hash, role, created_at, created_by) \
         VALUES (77, 't_00000000000000ff', {}, 'owner', 1, 'first_start')",
        db.bytes(9)
    );
    let found = findings_after(&db, &store, &plant).await;
    assert_eq!(found, [unrecorded("tokens", "t_00000000000000ff")]);
}

pub async fn token_with_other_hash_is_found(db: TestDatabase) {
    let store = with_token(&db).await;
    let change = format!("UPDATE tokens SET hash = {}", db.bytes(9));
    assert_eq!(findings_after(&db, &store, &change).await, [altered("tokens", token_id(1).as_str(), 1)]);
}

pub async fn token_revocation_undone_is_found(db: TestDatabase) {
    let store = with_token(&db).await;
    store.revoke_token(&token_id(1), at(50), "owner").await.unwrap();
    let found = findings_after(&db, &store, "UPDATE tokens SET revoked_at = NULL").await;
    assert_eq!(found, [altered("tokens", token_id(1).as_str(), 2)]);
}

pub async fn removed_token_is_found(db: TestDatabase) {
    let store = with_token(&db).await;
    let found = findings_after(&db, &store, "DELETE FROM tokens").await;
    assert_eq!(found, [removed("tokens", token_id(1).as_str(), 1)]);
}

async fn with_settings(db: &TestDatabase) -> Store {
    let store = db.open().await;
    for version in 0..2 {
        store.save_settings(&json!({ "version": version }), version, at(1), "ann").await.unwrap();
    }
    store
}

pub async fn changed_settings_are_found(db: TestDatabase) {
    let store = with_settings(&db).await;
    let found = findings_after(&db, &store, "UPDATE settings SET document = '{}' WHERE version = 2").await;
    assert_eq!(found, [altered("settings", "2", 2)]);
}

/// An attack: without its newest version, an older version of the settings is in force.
pub async fn removed_settings_version_is_found(db: TestDatabase) {
    let store = with_settings(&db).await;
    let found = findings_after(&db, &store, "DELETE FROM settings WHERE version = 2").await;
    assert_eq!(found, [removed("settings", "2", 2)]);
}

fn session(name: &str) -> SessionKey {
    SessionKey {
        user_id: "ann".parse().unwrap(),
        agent_id: "helper".parse().unwrap(),
        session_id: name.parse().unwrap(),
    }
}

fn operator_mode(security_mode: &str) -> SessionRules {
    let operator = AuthorRules { security_mode: Some(security_mode.to_owned()), ..AuthorRules::default() };
    SessionRules { operator, ..SessionRules::default() }
}

/// A session with a rule, and a deleted one whose row was removed because its rule only loosened.
async fn with_session_rules(db: &TestDatabase) -> Store {
    let store = db.open().await;
    for (name, mode) in [("s", "strict"), ("gone", "permissive")] {
        store
            .set_session_rules(session(name), RulesAuthor::Operator, operator_mode(mode), at(1), "owner")
            .await
            .unwrap();
    }
    store.end_session(session("gone"), UserRules::Dropped, at(2), "owner").await.unwrap();
    store
}

pub async fn lifted_rule_of_deleted_session_is_found(db: TestDatabase) {
    let store = with_session_rules(&db).await;
    store.end_session(session("s"), UserRules::Dropped, at(3), "owner").await.unwrap();
    let found = findings_after(&db, &store, "UPDATE sessions SET security_mode = 'permissive'").await;
    assert_eq!(found, [altered("sessions", "ann/helper/s", 4)]);
}

pub async fn planted_session_rule_is_found(db: TestDatabase) {
    let store = with_session_rules(&db).await;
    let columns = "callback_url, changed_at, changed_by";
    let plant = format!(
        "INSERT INTO sessions (user_id, agent_id, session_id, confirmation, {columns}) \
         SELECT user_id, agent_id, 'other', 'auto-approve', {columns} FROM sessions"
    );
    let found = findings_after(&db, &store, &plant).await;
    assert_eq!(found, [unrecorded("sessions", "ann/helper/other")]);
}

pub async fn removed_session_rule_is_found(db: TestDatabase) {
    let store = with_session_rules(&db).await;
    let found = findings_after(&db, &store, "DELETE FROM sessions").await;
    assert_eq!(found, [removed("sessions", "ann/helper/s", 1)]);
}

pub async fn planted_host_is_found(db: TestDatabase) {
    let store = open_approval(&db).await;
    let hosts = Remembering::Hosts { user: "ann".parse().unwrap(), entries: vec!["example.org".to_owned()] };
    let remembered = ringwall_record::Answer { remembered: hosts, ..answer(SettledStatus::Remembered, "ann") };
    store.settle_approval(&approval_id(1), remembered).await.unwrap();
    let plant = "INSERT INTO net_hosts (id, user_id, entry, created_at, created_by) VALUES (9, 'ann', '*', 1, 'ann')";
    assert_eq!(findings_after(&db, &store, plant).await, [unrecorded("net_hosts", "9")]);
}

pub async fn changed_host_uid_is_found(db: TestDatabase) {
    let store = db.open().await;
    let (user, agent) = ("ann".parse().unwrap(), "helper".parse().unwrap());
    assert_eq!(store.host_uid(&user, &agent, 1000..=1001, at(1)).await.unwrap(), 1000);
    let found = findings_after(&db, &store, "UPDATE identities SET user_id = 'eve'").await;
    assert_eq!(found, [altered("identities", "1000", 1)]);
}

pub async fn ending_written_by_sql_is_found(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&queued(1)).await.unwrap();
    store.intend(&queued(2)).await.unwrap();
    store.finish(&queued(2), &crate::samples::ended(FinalStatus::Succeeded)).await.unwrap();
    let change =
        format!("UPDATE sandbox_execs SET status = 'SUCCEEDED', ended_at = 5 WHERE exec_id = '{}'", exec_id(1));
    let found = findings_after(&db, &store, &change).await;
    assert_eq!(found, [Finding::OutcomeUnrecorded { exec_id: exec_id(1).to_string() }]);
}

/// Operators may edit this table with SQL, as the guide shows.
pub async fn path_written_with_sql_is_noted(db: TestDatabase) {
    let store = db.open().await;
    let new = NewPath { path: "/srv".to_owned(), description: String::new(), scope: PathScope::Global };
    store.add_path(new, at(1), Author::new("ann")).await.unwrap();
    assert_eq!(verify(&store).await.notes, []);
    db.execute("INSERT INTO sandbox_paths (path, description, enabled) VALUES ('/opt', '', 1)").await.unwrap();
    let found = verify(&store).await;
    assert_eq!((found.findings, found.notes), (vec![], vec![Note::PathByHand { id: "2".to_owned() }]));
}

pub async fn path_switch_changed_with_sql_is_noted(db: TestDatabase) {
    let store = db.open().await;
    store.switch_path_control(Switch::On, at(1), Author::new("ann")).await.unwrap();
    assert_eq!(verify(&store).await.notes, []);
    db.execute("UPDATE sandbox_configs SET enabled = 0").await.unwrap();
    let found = verify(&store).await;
    assert_eq!((found.findings, found.notes), (vec![], vec![Note::SwitchByHand]));
}

/// Retention removes the entries about a token, settings and a session rule, twice.
pub async fn rows_stay_recorded_when_retention_removes_their_entries(db: TestDatabase) {
    let store = with_token(&db).await;
    store.save_settings(&json!({}), 0, at(1), "ann").await.unwrap();
    store
        .set_session_rules(session("s"), RulesAuthor::Operator, operator_mode("strict"), at(1), "owner")
        .await
        .unwrap();
    for round in 0..2 {
        let removed = store.prune_audit(Keep::Newest(0), at(9), "owner").await.unwrap();
        assert!(removed >= 3, "round {round}: {removed}");
        assert_intact(&store).await;
    }
    let plant = format!(
        "INSERT INTO tokens (seq, id, hash, role, created_at, created_by) \
         VALUES (2, 't_00000000000000ff', {}, 'owner', 1, 'first_start')",
        db.bytes(9)
    );
    let found = findings_after(&db, &store, &plant).await;
    assert_eq!(found, [unrecorded("tokens", "t_00000000000000ff")]);
}

/// The row is set back to what its first entry recorded, and retention removes only that entry.
pub async fn row_set_back_is_not_restated_by_retention(db: TestDatabase) {
    let store = with_token(&db).await;
    store.append(event(2)).await.unwrap();
    store.revoke_token(&token_id(1), at(3), "owner").await.unwrap();
    db.tamper("UPDATE tokens SET revoked_at = NULL").await;
    store.prune_audit(Keep::Newest(1), at(9), "owner").await.unwrap();
    assert_eq!(verify(&store).await.findings, [altered("tokens", token_id(1).as_str(), 3)]);
}

pub async fn altered_row_is_not_restated_by_retention(db: TestDatabase) {
    let store = with_token(&db).await;
    db.tamper("UPDATE tokens SET role = 'owner'").await;
    store.prune_audit(Keep::Newest(0), at(9), "owner").await.unwrap();
    assert_eq!(verify(&store).await.findings, [unrecorded("tokens", token_id(1).as_str())]);
}
