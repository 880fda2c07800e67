//! Verification of the chain's head: cut tails, removed signatures and databases that were set
//! back.

use ringwall_record::{AuditFilter, Error, Finding, Limit, Link, Note, Scope, Signature, Store};

use crate::database::{TestDatabase, assert_intact, verify};
use crate::samples::{at, event};
use crate::tokens::{token, token_id};

const CUT: &str = "DELETE FROM audit WHERE seq > 3";
const SET_HEAD_BACK: &str = "UPDATE audit_head SET seq = 3, hash = (SELECT hash FROM audit WHERE seq = 3)";

/// A store with five entries.
async fn fill(db: &TestDatabase) -> Store {
    let store = db.open().await;
    for number in 1..=5 {
        store.append(event(number)).await.unwrap();
    }
    assert_intact(&store).await;
    store
}

async fn cut(db: &TestDatabase) {
    db.tamper(CUT).await;
    db.tamper(SET_HEAD_BACK).await;
}

fn replaced(seq: i64, found: &str) -> Finding {
    Finding::HeadReplaced { seq, found: found.to_owned(), through: 3 }
}

pub async fn cut_tail_is_found_with_the_key(db: TestDatabase) {
    let store = fill(&db).await;
    cut(&db).await;
    let found = verify(&store).await;
    assert_eq!((found.findings, found.signature), (vec![Finding::HeadForged], Signature::Invalid));
}

/// The control: without the key a cut chain looks like a shorter one, and a note says so.
pub async fn cut_tail_is_not_found_without_the_key(db: TestDatabase) {
    fill(&db).await.close().await;
    cut(&db).await;
    let auditor = Store::open(db.database.clone(), None).await.unwrap();
    let found = verify(&auditor).await;
    assert!(found.is_intact(), "{:?}", found.findings);
    assert_eq!((found.signature, found.notes), (Signature::NotChecked, vec![Note::SignatureNotChecked]));
}

pub async fn removed_signature_is_found(db: TestDatabase) {
    let store = fill(&db).await;
    cut(&db).await;
    db.tamper("UPDATE audit_head SET mac = NULL").await;
    assert_eq!(verify(&store).await.findings, [Finding::HeadUnsigned]);
}

/// The next entry signs the cut chain, but an entry about that is appended too.
pub async fn running_writer_records_a_cut_tail(db: TestDatabase) {
    let store = fill(&db).await;
    cut(&db).await;
    store.append(event(6)).await.unwrap();
    assert_eq!(verify(&store).await.findings, [replaced(5, "foreign")]);
    store.append(event(7)).await.unwrap();
    assert_eq!(verify(&store).await.findings, [replaced(5, "foreign")], "reported once, permanently");
}

pub async fn restarted_writer_records_a_cut_tail(db: TestDatabase) {
    fill(&db).await.close().await;
    cut(&db).await;
    let store = db.open().await;
    store.sign_head(at(9)).await.unwrap();
    assert_eq!(verify(&store).await.findings, [replaced(4, "foreign")]);
}

/// Puts the whole database back to its state after three entries, with the signature of that
/// moment.
async fn set_back(db: &TestDatabase) -> Store {
    let store = db.open().await;
    for number in 1..=3 {
        store.append(event(number)).await.unwrap();
    }
    db.execute("CREATE TABLE old_head AS SELECT * FROM audit_head").await.unwrap();
    for number in 4..=5 {
        store.append(event(number)).await.unwrap();
    }
    db.tamper(CUT).await;
    let of_old = ["seq", "hash", "mac"].map(|name| format!("{name} = (SELECT {name} FROM old_head)")).join(", ");
    db.tamper(&format!("UPDATE audit_head SET {of_old}")).await;
    store
}

pub async fn running_writer_records_an_older_head(db: TestDatabase) {
    let store = set_back(&db).await;
    store.append(event(6)).await.unwrap();
    assert_eq!(verify(&store).await.findings, [replaced(5, "older")]);
}

/// The old signature is valid, so only comparison with a head that was stored elsewhere finds this.
pub async fn database_set_back_is_found_by_a_kept_head(db: TestDatabase) {
    let other = db.another(0).await;
    let kept = fill(&other).await.audit_head().await.unwrap();
    let store = set_back(&db).await;
    assert_intact(&store).await;
    let found = store.verify_with(Some(kept), |_| {}).await.unwrap();
    assert_eq!(found.findings, [Finding::KeptHeadMissing { kept }]);
    // The control: the chain that the head was taken from contains it.
    let found = other.open().await.verify_with(Some(kept), |_| {}).await.unwrap();
    assert!(found.is_intact(), "{:?}", found.findings);
}

pub async fn kept_head_is_found_in_the_chain(db: TestDatabase) {
    let store = fill(&db).await;
    let first = store.audit_head().await.unwrap();
    for number in 6..=9 {
        store.append(event(number)).await.unwrap();
    }
    let findings = async |kept: Link| store.verify_with(Some(kept), |_| {}).await.unwrap().findings;
    assert_eq!(findings(first).await, []);
    let rewritten = Link { seq: 6, ..first };
    assert_eq!(findings(rewritten).await, [Finding::KeptHeadMissing { kept: rewritten }]);
    // Retention keeps the hash of the newest entry that it removed, and no older one.
    store.prune_audit(ringwall_record::Keep::Newest(4), at(9), "owner").await.unwrap();
    assert_eq!(findings(first).await, []);
    store.prune_audit(ringwall_record::Keep::Newest(1), at(9), "owner").await.unwrap();
    let start = verify(&store).await.start.seq;
    assert_eq!(findings(first).await, [Finding::KeptHeadTooOld { kept: first, start }]);
}

pub async fn cut_start_is_found(db: TestDatabase) {
    let store = fill(&db).await;
    db.tamper("UPDATE audit_checkpoint SET seq = 2, hash = (SELECT hash FROM audit WHERE seq = 2)").await;
    db.tamper("DELETE FROM audit WHERE seq <= 2").await;
    assert_eq!(verify(&store).await.findings, [Finding::StartRemoved { through: 2 }]);
}

/// Lists search entries with `filed = 0` only after `filed_through`.
pub async fn hidden_entry_is_found(db: TestDatabase) {
    let store = fill(&db).await;
    let listed = async || {
        let filter = AuditFilter { subject: Some("door 2".to_owned()), ..AuditFilter::everything(Scope::All) };
        store.audit(&filter, Limit::nearest(10), None).await.unwrap().items.len()
    };
    assert_eq!(listed().await, 1);
    db.tamper("UPDATE audit_head SET filed_through = 2").await;
    assert_eq!(listed().await, 0);
    // The first entry is not hidden: the writer filed it right after it was appended.
    assert_eq!(verify(&store).await.findings, [Finding::Hidden { seq: 2 }]);
}

/// Removing the signature before the next start does not make the server accept a change.
pub async fn restarted_writer_records_a_removed_signature(db: TestDatabase) {
    let store = fill(&db).await;
    store.create_token(token(1, ringwall_record::Holder::Operator)).await.unwrap();
    store.close().await;
    db.tamper("UPDATE tokens SET role = 'owner'").await;
    cut(&db).await;
    db.tamper("UPDATE audit_head SET mac = NULL").await;
    let store = db.open().await;
    store.sign_head(at(9)).await.unwrap();
    let planted = Finding::RowUnrecorded { table: "tokens", key: token_id(1).to_string() };
    assert_eq!(verify(&store).await.findings, [replaced(4, "removed"), planted]);
}

/// A command with another data directory would sign the head with its own key.
pub async fn head_of_another_key_is_refused(db: TestDatabase) {
    fill(&db).await.close().await;
    let other = Store::open(db.database.clone(), Some(ringwall_record::HeadKey::new([9; 32]))).await.unwrap();
    let refused = other.require_own_head().await.unwrap_err();
    assert!(matches!(refused, Error::HeadNotOurs { seq: 5 }), "{refused}");
    assert!(refused.hint().is_some_and(|hint| hint.contains("--data DIR")));
    let store = db.open().await;
    store.require_own_head().await.unwrap();
    assert_intact(&store).await;
    // The control: an entry that is written in spite of this is a permanent finding.
    other.append(event(6)).await.unwrap();
    store.append(event(7)).await.unwrap();
    let found = verify(&store).await.findings;
    assert!(matches!(found[..], [Finding::HeadReplaced { .. }, Finding::HeadReplaced { .. }]), "{found:?}");
    db.tamper("UPDATE audit_head SET mac = NULL").await;
    assert!(store.require_own_head().await.is_err(), "a removed signature");
}

pub async fn head_of_new_database_is_accepted(db: TestDatabase) {
    db.open().await.require_own_head().await.unwrap();
}

pub async fn store_without_key_refuses_to_write(db: TestDatabase) {
    fill(&db).await.close().await;
    let reader = Store::open(db.database.clone(), None).await.unwrap();
    let refused = reader.append(event(6)).await.unwrap_err();
    assert!(matches!(refused, Error::NoKey), "{refused:?}");
    assert_eq!(reader.audit_head().await.unwrap().seq, 5);
}
