//! Outcomes: exactly one for each exec.

use futures::future::join_all;
use ringwall_record::{
    AuditFilter, Error, ExecOutcome, FinalStatus, FinishResult, IntentResult, Limit, NewExec, Scope, Status,
    StoredOutput,
};
use serde_json::json;

use crate::database::{TestDatabase, assert_intact};
use crate::samples::{at, denied, ended, exec_id, queued, reason, running};

pub async fn first_outcome_stays(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    let outcomes =
        [FinalStatus::Succeeded, FinalStatus::Failed, FinalStatus::Timeout, FinalStatus::Cancelled].repeat(5);
    let exec = running(1);
    let answers = join_all(outcomes.iter().map(|status| store.finish(&exec, &ended(*status)))).await;
    let winners: Vec<usize> =
        (0..outcomes.len()).filter(|index| matches!(answers[*index], Ok(FinishResult::Recorded))).collect();
    assert_eq!(winners.len(), 1);
    let winner = Status::from(outcomes[winners[0]]);
    let stored = store.exec(&exec_id(1), &Scope::All).await.unwrap().unwrap();
    assert_eq!(stored.summary.status, winner);
    for (index, answer) in answers.into_iter().enumerate() {
        let expected = if winners == [index] { FinishResult::Recorded } else { FinishResult::AlreadyEnded(winner) };
        assert_eq!(answer.unwrap(), expected);
    }
    assert_intact(&store).await;
}

pub async fn outcome_round_trips(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    let outcome = ExecOutcome {
        exit_code: Some(-1),
        error_reason: Some(reason("OOM")),
        protections: Some(json!([{ "name": "landlock", "state": "held" }])),
        stdout: StoredOutput::Truncated,
        stderr: StoredOutput::Complete,
        cpu_ms: Some(12),
        max_rss_bytes: Some(1 << 40),
        ..ended(FinalStatus::Failed)
    };
    store.finish(&running(1), &outcome.clone()).await.unwrap();
    let exec = store.exec(&exec_id(1), &Scope::All).await.unwrap().unwrap();
    let summary = exec.summary;
    assert_eq!((summary.status, summary.exit_code, summary.duration_ms), (Status::Failed, Some(-1), Some(7)));
    assert_eq!((summary.started_at, summary.ended_at), (Some(at(1_001)), Some(at(2_000))));
    assert_eq!((exec.error_reason, exec.protections), (outcome.error_reason, outcome.protections));
    assert_eq!((exec.stdout, exec.stderr), (StoredOutput::Truncated, StoredOutput::Complete));
    assert_eq!((exec.cpu_ms, exec.max_rss_bytes), (Some(12), Some(1 << 40)));
    assert_intact(&store).await;
}

/// Enough execs for several transactions.
pub async fn unfinished_execs_become_lost(db: TestDatabase) {
    let store = db.open().await;
    let intents = (0..300).map(|number| match number % 3 {
        0 => running(number),
        1 => queued(number),
        _ => denied(number),
    });
    for intent in join_all(intents.map(|intent| store.intend(&intent))).await {
        assert_eq!(intent.unwrap(), IntentResult::Recorded);
    }
    store.finish(&running(0), &ended(FinalStatus::Succeeded)).await.unwrap();
    let mut lost = store.mark_unfinished_lost(at(9_000)).await.unwrap();
    lost.sort();
    let unfinished: Vec<_> = (1..300).filter(|number| number % 3 != 2).map(exec_id).collect();
    assert_eq!(lost, unfinished);
    for id in [exec_id(1), exec_id(3)] {
        let exec = store.exec(&id, &Scope::All).await.unwrap().unwrap();
        assert_eq!((exec.summary.status, exec.summary.ended_at), (Status::Lost, Some(at(9_000))));
        assert_eq!(exec.error_reason.unwrap().code, "LOST");
    }
    let kept = store.exec(&exec_id(0), &Scope::All).await.unwrap().unwrap();
    assert_eq!(kept.summary.status, Status::Succeeded);
    assert!(store.mark_unfinished_lost(at(9_001)).await.unwrap().is_empty());
    assert!(matches!(store.begin(&exec_id(1), at(0)).await, Err(Error::NotWaiting { status: Status::Lost, .. })));
    assert_intact(&store).await;
}

pub async fn outcome_of_unknown_exec_is_refused(db: TestDatabase) {
    let store = db.open().await;
    let outcome = store.finish(&running(1), &ended(FinalStatus::Succeeded)).await;
    assert!(matches!(outcome, Err(Error::UnknownExec(id)) if id == exec_id(1)));
    assert_eq!(store.audit_head().await.unwrap().seq, 0, "nothing was written");
}

/// Each store last wrote a head that the other has replaced since.
pub async fn alternating_stores_share_one_chain(db: TestDatabase) {
    let (left, right) = (db.open().await, db.open().await);
    for number in (0..20).step_by(2) {
        left.intend(&running(number)).await.unwrap();
        right.intend(&running(number + 1)).await.unwrap();
        let ended = ended(FinalStatus::Succeeded);
        assert_eq!(left.finish(&running(number), &ended.clone()).await.unwrap(), FinishResult::Recorded);
        assert_eq!(left.finish(&running(number + 1), &ended.clone()).await.unwrap(), FinishResult::Recorded);
        let again = right.finish(&running(number + 1), &ended).await.unwrap();
        assert_eq!(again, FinishResult::AlreadyEnded(Status::Succeeded), "recorded by the other store");
    }
    assert_intact(&left).await;
    assert_eq!(left.audit_head().await.unwrap().seq, 40);
}

/// Refused operations return their error and write nothing, and the next operation succeeds.
pub async fn refused_operations_write_nothing(db: TestDatabase) {
    let store = db.open().await;
    store.intend(&running(1)).await.unwrap();
    assert!(matches!(store.intend(&running(1)).await, Err(Error::ExecIdTaken(_))), "the id is used");
    assert!(matches!(store.finish(&running(2), &ended(FinalStatus::Failed)).await, Err(Error::UnknownExec(_))));
    let bobs = NewExec { user_id: "bob".parse().unwrap(), ..running(1) };
    let others = NewExec { agent_id: "other".parse().unwrap(), ..running(1) };
    for mistaken in [bobs, others] {
        let refused = store.finish(&mistaken, &ended(FinalStatus::Failed)).await;
        assert!(matches!(refused, Err(Error::UnknownExec(_))), "wrong owner: {refused:?}");
    }
    assert_eq!(store.finish(&running(1), &ended(FinalStatus::Failed)).await.unwrap(), FinishResult::Recorded);
    store.intend(&running(3)).await.unwrap();
    let outcome = store.finish(&running(3), &ended(FinalStatus::Succeeded)).await.unwrap();
    assert_eq!(outcome, FinishResult::Recorded);
    assert_intact(&store).await;
    let all = store.audit(&AuditFilter::everything(Scope::All), Limit::nearest(10), None).await.unwrap();
    let users: Vec<_> = all.items.iter().map(|entry| entry.user_id.as_deref()).collect();
    assert_eq!(users, [Some("ann"); 4], "owners of the entries");
}
