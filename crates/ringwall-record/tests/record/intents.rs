//! Intents, idempotency keys and the start of execs.

use futures::future::join_all;
use ringwall_record::{
    AuditFilter, Digest, Error, ExecListFilter, FinalStatus, FinishResult, Idempotency, IntentResult, Limit, NewExec,
    Scope, Start, Status, StoredOutput,
};
use serde_json::json;

use crate::database::{TestDatabase, assert_intact};
use crate::samples::{at, denied, ended, exec_id, queued, reason, running};

pub async fn intent_round_trips(db: TestDatabase) {
    let store = db.open().await;
    let new = NewExec {
        idempotency: Some(Idempotency { key: "key".to_owned(), body_digest: Digest::of(b"body") }),
        task_id: Some("task".to_owned()),
        conversation_id: Some("conversation".to_owned()),
        skill_id: Some("shell.run".to_owned()),
        image: Some("debian".to_owned()),
        ..running(1)
    };
    assert_eq!(store.intend(&new).await.unwrap(), IntentResult::Recorded);
    let exec = store.exec(&new.exec_id, &Scope::All).await.unwrap().unwrap();
    assert_eq!(exec.seq, 1);
    assert_eq!(exec.caller, new.caller);
    assert_eq!(exec.idempotency, new.idempotency);
    assert_eq!(exec.image, new.image);
    assert_eq!((&exec.cmd, &exec.args, &exec.cwd, &exec.env_keys), (&new.cmd, &new.args, &new.cwd, &new.env_keys));
    assert_eq!(exec.policy_snapshot, new.policy_snapshot);
    assert_eq!((exec.protections, exec.error_reason), (None, None));
    assert_eq!(
        (exec.stdout, exec.stderr, exec.cpu_ms, exec.max_rss_bytes),
        (StoredOutput::Complete, StoredOutput::Complete, None, None)
    );
    let summary = exec.summary;
    assert_eq!((summary.exec_id, summary.user_id, summary.agent_id), (new.exec_id, new.user_id, new.agent_id));
    assert_eq!(
        (summary.project_id, summary.task_id, summary.conversation_id),
        (new.project_id, new.task_id, new.conversation_id)
    );
    assert_eq!(
        (summary.skill_id, summary.backend, summary.artifacts_path),
        (new.skill_id, new.backend, new.artifacts_path)
    );
    assert_eq!((summary.status, summary.exit_code, summary.duration_ms), (Status::Running, None, None));
    assert_eq!((summary.created_at, summary.started_at, summary.ended_at), (new.created_at, Some(at(1_001)), None));
    assert_intact(&store).await;
}

pub async fn denied_intent_has_outcome(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&denied(1)).await.unwrap();
    let exec = store.exec(&exec_id(1), &Scope::All).await.unwrap().unwrap();
    assert_eq!(exec.summary.status, Status::PolicyDenied);
    assert_eq!(exec.error_reason, Some(reason("POLICY_DENIED")));
    assert_eq!((exec.summary.started_at, exec.summary.ended_at), (None, Some(exec.summary.created_at)));
    let second = store.finish(&running(1), &ended(FinalStatus::Succeeded)).await.unwrap();
    assert_eq!(second, FinishResult::AlreadyEnded(Status::PolicyDenied));
    assert_intact(&store).await;
}

fn keyed(number: u64, caller: &str, key: &str) -> NewExec {
    let body_digest = Digest::of(&number.to_be_bytes());
    let idempotency = Some(Idempotency { key: key.to_owned(), body_digest });
    NewExec { caller: caller.to_owned(), idempotency, ..running(number) }
}

pub async fn concurrent_intents_with_one_key_record_one_exec(db: TestDatabase) {
    let store = db.open().await;
    let intents = join_all((0..40).map(|number| store.intend(&keyed(number, "a", "key")))).await;
    let recorded: Vec<usize> =
        (0..40).filter(|number| matches!(intents[*number], Ok(IntentResult::Recorded))).collect();
    assert_eq!(recorded.len(), 1);
    let first = u64::try_from(recorded[0]).unwrap();
    let known = IntentResult::Known { exec_id: exec_id(first), body_digest: Digest::of(&first.to_be_bytes()) };
    for intent in intents {
        let intent = intent.unwrap();
        assert!(intent == IntentResult::Recorded || intent == known, "{intent:?}");
    }
    assert_eq!(
        store.intend(&keyed(100, "b", "key")).await.unwrap(),
        IntentResult::Recorded,
        "the key of another caller"
    );
    assert_eq!(store.intend(&keyed(101, "a", "other key")).await.unwrap(), IntentResult::Recorded);
    assert_eq!(store.intend(&running(102)).await.unwrap(), IntentResult::Recorded, "no key at all");
    assert_eq!(store.intend(&running(103)).await.unwrap(), IntentResult::Recorded);
    let all = store.list(&ExecListFilter::everything(Scope::All), Limit::nearest(1000), None).await.unwrap();
    assert_eq!(all.items.len(), 5);
    assert_intact(&store).await;
}

pub async fn idempotency_key_survives_reopening(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&keyed(1, "a", "key")).await.unwrap();
    store.close().await;
    let store = db.open().await;
    let known = IntentResult::Known { exec_id: exec_id(1), body_digest: Digest::of(&1_u64.to_be_bytes()) };
    assert_eq!(store.intend(&keyed(2, "a", "key")).await.unwrap(), known);
    assert!(store.exec(&exec_id(2), &Scope::All).await.unwrap().is_none());
}

pub async fn taken_exec_id_is_refused(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    assert!(matches!(store.intend(&running(1)).await, Err(Error::ExecIdTaken(id)) if id == exec_id(1)));
    assert!(matches!(store.intend(&keyed(1, "a", "key")).await, Err(Error::ExecIdTaken(_))));
    assert_intact(&store).await;
}

pub async fn only_waiting_exec_can_begin(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&queued(1)).await.unwrap();
    store.intend(&NewExec { start: Start::AwaitingApproval, ..running(2) }).await.unwrap();
    store.intend(&queued(3)).await.unwrap();
    store.intend(&running(4)).await.unwrap();
    for number in [1, 2] {
        store.begin(&exec_id(number), at(5_000)).await.unwrap();
        let exec = store.exec(&exec_id(number), &Scope::All).await.unwrap().unwrap();
        assert_eq!((exec.summary.status, exec.summary.started_at), (Status::Running, Some(at(5_000))));
    }
    store.finish(&running(3), &ended(FinalStatus::Cancelled)).await.unwrap();
    for (number, status) in [(1, Status::Running), (3, Status::Cancelled), (4, Status::Running)] {
        let refused = store.begin(&exec_id(number), at(6_000)).await;
        assert!(matches!(refused, Err(Error::NotWaiting { status: found, .. }) if found == status), "{number}");
    }
    assert!(matches!(store.begin(&exec_id(9), at(0)).await, Err(Error::UnknownExec(_))));
    // Only a running exec can return to AWAITING_APPROVAL.
    store.return_to_approval(&exec_id(2)).await.unwrap();
    let waits = store.exec(&exec_id(2), &Scope::All).await.unwrap().unwrap();
    assert_eq!((waits.summary.status, waits.summary.started_at), (Status::AwaitingApproval, None));
    for number in [2, 3, 9] {
        assert!(store.return_to_approval(&exec_id(number)).await.is_err(), "{number}");
    }
    store.begin(&exec_id(2), at(7_000)).await.unwrap();
    assert_intact(&store).await;
}

/// The intent's row does not change; reads return the applied policy instead.
pub async fn applied_policy_replaces_policy_of_intent(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    let applied = json!({ "version": "2", "path_control": "on", "paths": [{ "path": "/srv" }] });
    let of = async || store.exec(&exec_id(1), &Scope::All).await.unwrap().map(|exec| exec.policy_snapshot);
    assert_eq!(of().await, Some(running(1).policy_snapshot));
    store.record_policy(&running(1), &json!({ "version": "1" }), at(1)).await.unwrap();
    store.record_policy(&running(1), &applied, at(2)).await.unwrap();
    assert_eq!(of().await, Some(applied));
    let filter = AuditFilter { action: Some("exec.policy".to_owned()), ..AuditFilter::everything(Scope::All) };
    let entries = store.audit(&filter, Limit::nearest(9), None).await.unwrap().items;
    assert!(entries.len() == 2 && entries[0].detail.contains("/srv"), "{entries:?}");
    assert_intact(&store).await;
    store.finish(&running(1), &ended(FinalStatus::Succeeded)).await.unwrap();
    store.prune_execs(vec![exec_id(1)], at(99_999), at(99_999), "owner").await.unwrap();
    store.intend(&running(1)).await.unwrap();
    assert_eq!(of().await, Some(running(1).policy_snapshot), "removed with its exec");
}

pub async fn unstorable_values_are_refused(db: TestDatabase) {
    let store = db.open().await;
    let long = "x".repeat(513);
    let refused = [
        NewExec { cmd: "a\0".to_owned(), ..running(1) },
        NewExec { cwd: "\0".to_owned(), ..running(1) },
        NewExec { project_id: long.clone(), ..running(1) },
        NewExec { task_id: Some(long.clone()), ..running(1) },
        NewExec { image: Some("\0".to_owned()), ..running(1) },
        keyed(1, "a", &long),
        keyed(1, &long, "key"),
    ];
    for new in refused {
        let outcome = store.intend(&new).await;
        assert!(matches!(outcome, Err(Error::NulByte { .. } | Error::TextTooLong { .. })), "{outcome:?}");
    }
    store.intend(&running(1)).await.unwrap();
    let outcome = store
        .finish(&running(1), &ringwall_record::ExecOutcome { cpu_ms: Some(u64::MAX), ..ended(FinalStatus::Failed) })
        .await;
    assert!(matches!(outcome, Err(Error::NumberTooLarge { column: "cpu_ms" })), "{outcome:?}");
    // The maximum lengths fit into every index of both databases.
    let longest = "é".repeat(256);
    let name = "n".repeat(128);
    let new = NewExec {
        user_id: name.parse().unwrap(),
        agent_id: name.parse().unwrap(),
        project_id: longest.clone(),
        task_id: Some(longest.clone()),
        ..keyed(2, &longest, &longest)
    };
    assert_eq!(store.intend(&new).await.unwrap(), IntentResult::Recorded);
}
