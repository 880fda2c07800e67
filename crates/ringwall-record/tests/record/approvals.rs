//! Approvals: opened, answered once, listed, and removed with their execs.

use futures::future::join_all;
use ringwall_ids::ApprovalId;
use ringwall_record::{
    Added, Answer, Approval, ApprovalFiles, ApprovalFilter, ApprovalKind, ApprovalStatus, AuditFilter, Author,
    CoveredFile, Database, Digest, FinalStatus, Limit, NewApproval, NewPath, PathChange, PathScope, RememberedPath,
    Remembering, RiskLevel, Scope, ScriptText, Settled, SettledStatus, Store, Switch, Uncovered, UncoveredFile,
};
use serde_json::{Value, json};

use crate::database::{TestDatabase, assert_intact};
use crate::samples::{at, ended, exec_id, running};

pub(crate) fn approval_id(number: u64) -> ApprovalId {
    format!("a_{number:016x}").parse().unwrap()
}

pub(crate) fn question(number: u64) -> NewApproval {
    NewApproval {
        id: approval_id(number),
        kind: ApprovalKind::Path,
        exec_id: exec_id(number),
        user_id: "ann".parse().unwrap(),
        agent_id: "helper".parse().unwrap(),
        session_id: "s".to_owned(),
        command: "cat '/home/é'; -- ' OR 1=1".to_owned(),
        code: None,
        requested_paths: vec!["/home/é".to_owned()],
        blocked_paths: vec!["/home/é/a".to_owned(), "C:\\x".to_owned()],
        risk_level: RiskLevel::Medium,
        patterns: Vec::new(),
        files: Default::default(),
        digest: Digest::of(&number.to_be_bytes()),
        asked_by: "t_0123456789abcdef".to_owned(),
        created_at: at(1),
        expires_at: at(100),
    }
}

pub(crate) fn answer(status: SettledStatus, by: &str) -> Answer {
    let author = Author { by: by.to_owned(), from: from() };
    Answer { status, at: at(50), author, reason: Some("because".to_owned()), remembered: Remembering::Nothing }
}

fn from() -> Value {
    json!({ "door": "http", "remote": "127.0.0.1:1" })
}

async fn find(store: &Store, number: u64) -> Approval {
    store.approval(&approval_id(number), &Scope::All).await.unwrap().unwrap()
}

pub async fn first_answer_stays(db: TestDatabase) {
    let store = db.open().await;
    store.open_approval(question(1), from()).await.unwrap();
    let answers = join_all((0..16).map(|number| {
        let status = if number % 2 == 0 { SettledStatus::Approved } else { SettledStatus::Denied };
        let (store, by) = (store.clone(), format!("person {number}"));
        async move { store.settle_approval(&approval_id(1), answer(status, &by)).await.unwrap() }
    }))
    .await;
    let stands = find(&store, 1).await;
    let recorded: Vec<&Settled> = answers.iter().filter(|result| matches!(result, Settled::Recorded(_))).collect();
    assert_eq!(recorded, [&Settled::Recorded(Box::new(stands.clone()))]);
    let already_settled =
        answers.iter().filter(|result| **result == Settled::AlreadySettled(Box::new(stands.clone()))).count();
    assert_eq!(already_settled, 15);
    let unknown = store.settle_approval(&approval_id(2), answer(SettledStatus::Denied, "x")).await.unwrap();
    assert_eq!(unknown, Settled::Unknown);
    let of = AuditFilter { subject: Some(approval_id(1).to_string()), ..AuditFilter::everything(Scope::All) };
    let entries = store.audit(&of, Limit::nearest(10), None).await.unwrap().items;
    let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, [&format!("approval.{}", stands.status), "approval.opened"]);
    assert_eq!(Some(&entries[0].actor), stands.answered_by.as_ref());
    assert!(entries.iter().all(|entry| entry.detail.contains("127.0.0.1:1")), "no origin: {entries:?}");
    assert!(entries[1].detail.contains("/home/é/a"), "{entries:?}");
    assert_intact(&store).await;
}

pub async fn approval_round_trips(db: TestDatabase) {
    let store = db.open().await;
    let (path, sha256) = ("/workspace/é.sh".to_owned(), "00".repeat(32));
    let script = Some(ScriptText { text: "echo 'é'".to_owned(), is_whole: false });
    let files = ApprovalFiles {
        covered: vec![CoveredFile { path: path.clone(), sha256, size: u64::from(u32::MAX) + 1, pinned: true, script }],
        not_covered: vec![UncoveredFile { path, why: Uncovered::OpenedByScript }],
    };
    let (code, patterns) = (Some("print(1)".to_owned()), vec!["rm".to_owned()]);
    let asked = NewApproval { code, patterns, files, ..question(1) };
    store.open_approval(asked.clone(), from()).await.unwrap();
    let pending =
        Approval { asked, status: ApprovalStatus::Pending, answered_at: None, answered_by: None, reason: None };
    assert_eq!(find(&store, 1).await, pending);
    store.settle_approval(&approval_id(1), answer(SettledStatus::Remembered, "bob")).await.unwrap();
    let remembered = Approval {
        status: ApprovalStatus::Remembered,
        answered_at: Some(at(50)),
        answered_by: Some("bob".to_owned()),
        reason: Some("because".to_owned()),
        ..pending
    };
    store.close().await;
    assert_eq!(find(&db.open().await, 1).await, remembered);
}

pub async fn pending_approvals_expire(db: TestDatabase) {
    let store = db.open().await;
    for number in 0..300 {
        store.open_approval(question(number), from()).await.unwrap();
    }
    store.settle_approval(&approval_id(7), answer(SettledStatus::Approved, "bob")).await.unwrap();
    assert_eq!(store.expire_pending_approvals(at(9), "ringwall", "stopped").await.unwrap(), 299);
    assert_eq!(store.expire_pending_approvals(at(9), "ringwall", "stopped").await.unwrap(), 0);
    assert_eq!(find(&store, 7).await.status, ApprovalStatus::Approved);
    let expired = find(&store, 8).await;
    assert_eq!((expired.status, expired.reason.as_deref()), (ApprovalStatus::Expired, Some("stopped")));
    let late = store.settle_approval(&approval_id(8), answer(SettledStatus::Approved, "bob")).await.unwrap();
    assert_eq!(late, Settled::AlreadySettled(Box::new(expired)));
    assert_intact(&store).await;
}

pub async fn approval_lists_are_filtered(db: TestDatabase) {
    let store = db.open().await;
    for number in 0..12 {
        let (user, agent) = (["ann", "bob"][usize::from(number % 2 == 1)], ["x", "y"][usize::from(number % 4 > 1)]);
        let new = NewApproval { user_id: user.parse().unwrap(), agent_id: agent.parse().unwrap(), ..question(number) };
        store.open_approval(new, from()).await.unwrap();
        if number % 3 == 0 {
            store.settle_approval(&approval_id(number), answer(SettledStatus::Denied, "z")).await.unwrap();
        }
    }
    let list_of = async |scope: Scope, status, exec: Option<u64>| {
        let filter = ApprovalFilter { scope, status, exec_id: exec.map(exec_id) };
        let (mut cursor, mut found) = (None, Vec::new());
        loop {
            let page = store.approvals(&filter, Limit::nearest(2), cursor).await.unwrap();
            assert!(page.items.len() <= 2);
            found.extend(page.items.into_iter().map(|one| one.asked.id));
            cursor = page.next;
            if cursor.is_none() {
                return found;
            }
        }
    };
    let list = async |scope: Scope, status| list_of(scope, status, None).await;
    let expected = |keep: &dyn Fn(u64) -> bool| (0..12).rev().filter(|number| keep(*number)).map(approval_id).collect();
    let bob = || "bob".parse().unwrap();
    let all: Vec<ApprovalId> = expected(&|_| true);
    assert_eq!(list(Scope::All, None).await, all);
    let pending: Vec<ApprovalId> = expected(&|number| number % 3 != 0);
    assert_eq!(list(Scope::All, Some(ApprovalStatus::Pending)).await, pending);
    let of_bob: Vec<ApprovalId> = expected(&|number| number % 2 == 1);
    assert_eq!(list(Scope::User(bob()), None).await, of_bob);
    let denied: Vec<ApprovalId> = expected(&|number| number % 2 == 1 && number % 3 == 0);
    assert_eq!(list(Scope::User(bob()), Some(ApprovalStatus::Denied)).await, denied);
    let of_agent: Vec<ApprovalId> = expected(&|number| number % 4 == 3);
    assert_eq!(list(Scope::Agent(bob(), "y".parse().unwrap()), None).await, of_agent);
    assert!(list(Scope::All, Some(ApprovalStatus::Expired)).await.is_empty());
    assert_eq!(list_of(Scope::All, None, Some(3)).await, [approval_id(3)]);
    assert_eq!(list_of(Scope::User(bob()), Some(ApprovalStatus::Denied), Some(3)).await, [approval_id(3)]);
    assert!(list_of(Scope::User(bob()), None, Some(4)).await.is_empty(), "of another user");
    assert!(list_of(Scope::All, Some(ApprovalStatus::Pending), Some(3)).await.is_empty(), "answered");
    // An approval of another user is missing.
    assert_eq!(store.approval(&approval_id(0), &Scope::User(bob())).await.unwrap(), None);
    let of_exec = AuditFilter { exec_id: Some(exec_id(3).to_string()), ..AuditFilter::everything(Scope::All) };
    let entries = store.audit(&of_exec, Limit::nearest(10), None).await.unwrap().items;
    let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["approval.denied", "approval.opened"]);
    let by = AuditFilter { actor: Some("z".to_owned()), ..AuditFilter::everything(Scope::All) };
    assert_eq!(store.audit(&by, Limit::nearest(10), None).await.unwrap().items.len(), 4);
}

pub async fn approvals_are_removed_with_exec(db: TestDatabase) {
    let store = db.open().await;
    for number in 1..=2 {
        store.intend(&running(number)).await.unwrap();
        store.open_approval(question(number), from()).await.unwrap();
        store.settle_approval(&approval_id(number), answer(SettledStatus::Denied, "bob")).await.unwrap();
    }
    store.finish(&running(1), &ended(FinalStatus::Succeeded)).await.unwrap();
    let removed = store.prune_execs(vec![exec_id(1), exec_id(2)], at(9999), at(9999), "retention").await.unwrap();
    assert_eq!(removed, 1);
    assert_eq!(store.approval(&approval_id(1), &Scope::All).await.unwrap(), None);
    assert_eq!(find(&store, 2).await.status, ApprovalStatus::Denied, "its exec was not removed");
    assert_intact(&store).await;
}

pub async fn incomplete_answer_is_refused(db: TestDatabase) {
    let store = db.open().await;
    store.open_approval(question(1), from()).await.unwrap();
    for change in ["status = 'approved'", "answered_at = 1", "status = 'allowed', answered_at = 1, answered_by = 'x'"] {
        assert!(db.execute(&format!("UPDATE approvals SET {change}")).await.is_err(), "{change}");
    }
    let taken = store.open_approval(question(1), from()).await;
    assert!(taken.is_err(), "an id is used once");
    for bad in [
        NewApproval { command: "a\0".to_owned(), ..question(2) },
        NewApproval { session_id: "x".repeat(600), ..question(3) },
    ] {
        assert!(store.open_approval(bad, from()).await.is_err());
    }
    assert_intact(&store).await;
}

fn remembered(paths: &[(&str, &[i64])], by: &str) -> Answer {
    let paths = paths.iter().map(|(path, known)| RememberedPath {
        new: NewPath { path: (*path).to_owned(), description: String::new(), scope: PathScope::Global },
        known: known.to_vec(),
    });
    Answer { remembered: Remembering::Paths(paths.collect()), ..answer(SettledStatus::Remembered, by) }
}

async fn listed(store: &Store) -> Vec<(String, Switch)> {
    store.paths().await.unwrap().into_iter().map(|entry| (entry.path, entry.enabled)).collect()
}

/// If adding a path fails, the answer is not recorded either.
pub async fn answer_and_remembered_paths_are_one_transaction(db: TestDatabase) {
    let store = db.open().await;
    store.open_approval(question(1), from()).await.unwrap();
    let refuse = match db.database {
        Database::Sqlite(_) => {
            "CREATE TRIGGER full BEFORE INSERT ON sandbox_paths WHEN NEW.path = '/second' \
             BEGIN SELECT RAISE(ABORT, 'no room'); END"
        }
        Database::Postgres(_) => "ALTER TABLE sandbox_paths ADD CONSTRAINT fully CHECK (path <> '/second')",
    };
    db.execute(refuse).await.unwrap();
    let failed = store.settle_approval(&approval_id(1), remembered(&[("/first", &[]), ("/second", &[])], "bob")).await;
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!((find(&store, 1).await.status, listed(&store).await), (ApprovalStatus::Pending, vec![]));
    let result = store.settle_approval(&approval_id(1), remembered(&[("/first", &[]), ("/third", &[])], "bob")).await;
    assert!(matches!(result.unwrap(), Settled::Recorded(_)));
    let both = vec![("/first".to_owned(), Switch::On), ("/third".to_owned(), Switch::On)];
    assert_eq!(listed(&store).await, both);
    // A second answer adds no path.
    let second = store.settle_approval(&approval_id(1), remembered(&[("/fourth", &[])], "eve")).await.unwrap();
    assert!(matches!(second, Settled::AlreadySettled(_)));
    assert_eq!(listed(&store).await, both);
    let filter = AuditFilter { action: Some("sandbox.path.added".to_owned()), ..AuditFilter::everything(Scope::All) };
    let entries = store.audit(&filter, Limit::nearest(9), None).await.unwrap().items;
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|entry| entry.detail.contains(approval_id(1).as_str()) && entry.actor == "bob"));
    // The filter by approval finds the question, its answer and the paths that the answer added.
    let about = async |number| {
        let filter = AuditFilter { request_id: Some(approval_id(number)), ..AuditFilter::everything(Scope::All) };
        let entries = store.audit(&filter, Limit::nearest(9), None).await.unwrap().items;
        entries.into_iter().map(|entry| entry.action).collect::<Vec<_>>()
    };
    let all = ["sandbox.path.added", "sandbox.path.added", "approval.remembered", "approval.opened"];
    assert_eq!((about(1).await, about(2).await), (all.map(str::to_owned).to_vec(), vec![]));
    assert_intact(&store).await;
}

/// A disabled row of the same path is enabled, also in another spelling. A row of another scope is
/// not.
pub async fn remembered_paths_are_enabled(db: TestDatabase) {
    let store = db.open().await;
    let add = async |path: &str, scope| {
        let new = NewPath { path: path.to_owned(), description: String::new(), scope };
        let Added::Recorded { id } = store.add_path(new, at(1), Author::new("owner")).await.unwrap() else { panic!() };
        let off = PathChange { enabled: Some(Switch::Off), description: None };
        store.change_path(id, off, at(2), Author::new("owner")).await.unwrap();
        id
    };
    let spelt = add("/a/", PathScope::Global).await;
    add("/b", PathScope::Global).await;
    let of_ann = add("/c", PathScope::User("ann".parse().unwrap())).await;
    store.open_approval(question(1), from()).await.unwrap();
    let paths = [("/a", &[spelt, 999][..]), ("/b", &[]), ("/c", &[of_ann])];
    store.settle_approval(&approval_id(1), remembered(&paths, "bob")).await.unwrap();
    let expected = [("/a/", Switch::On), ("/b", Switch::On), ("/c", Switch::Off), ("/c", Switch::On)];
    assert_eq!(listed(&store).await, expected.map(|(path, switch)| (path.to_owned(), switch)));
    assert_intact(&store).await;
}
