//! Properties that hold after any sequence of concurrent operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ringwall_record::{
    AuditFilter, Error, FinalStatus, FinishResult, Idempotency, IntentResult, Keep, Limit, NewExec, Scope, Store,
};

use crate::database::{TestDatabase, assert_intact};
use crate::samples::{at, denied, ended, event, exec_id, queued, running};

#[derive(Debug, Clone)]
enum Operation {
    Intend(u64),
    IntendQueued(u64),
    IntendDenied(u64),
    IntendKeyed(u64),
    Begin(u64),
    FinishResult(u64, FinalStatus),
    Lose,
    Append,
    PruneExecs,
    PruneAudit(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let number = 0..6_u64;
    let status = prop_oneof![Just(FinalStatus::Succeeded), Just(FinalStatus::Failed), Just(FinalStatus::Cancelled)];
    prop_oneof![
        3 => number.clone().prop_map(Operation::Intend),
        3 => number.clone().prop_map(Operation::IntendQueued),
        1 => number.clone().prop_map(Operation::IntendDenied),
        2 => number.clone().prop_map(Operation::IntendKeyed),
        3 => number.clone().prop_map(Operation::Begin),
        6 => (number, status).prop_map(|(number, status)| Operation::FinishResult(number, status)),
        1 => Just(Operation::Lose),
        2 => Just(Operation::Append),
        1 => Just(Operation::PruneExecs),
        1 => (0..9_u64).prop_map(Operation::PruneAudit),
    ]
}

/// The execs whose intent or outcome an operation recorded.
#[derive(Debug, Default)]
struct Recorded {
    intended: Vec<u64>,
    ended: Vec<u64>,
}

async fn perform(store: &Store, operation: &Operation) -> Result<Recorded, Error> {
    let mut recorded = Recorded::default();
    let keyed = |number: u64| NewExec {
        idempotency: Some(Idempotency { key: "key".to_owned(), body_digest: ringwall_record::Digest::ZERO }),
        ..running(number)
    };
    match *operation {
        Operation::Intend(number)
        | Operation::IntendQueued(number)
        | Operation::IntendDenied(number)
        | Operation::IntendKeyed(number) => {
            let new = match operation {
                Operation::IntendQueued(_) => queued(number),
                Operation::IntendDenied(_) => denied(number),
                Operation::IntendKeyed(_) => keyed(number),
                _ => running(number),
            };
            if store.intend(&new).await? == IntentResult::Recorded {
                recorded.intended.push(number);
                if matches!(operation, Operation::IntendDenied(_)) {
                    recorded.ended.push(number);
                }
            }
        }
        Operation::Begin(number) => store.begin(&exec_id(number), at(1)).await?,
        Operation::FinishResult(number, status) => {
            if store.finish(&running(number), &ended(status)).await? == FinishResult::Recorded {
                recorded.ended.push(number);
            }
        }
        Operation::Lose => {
            let lost = store.mark_unfinished_lost(at(3)).await?;
            recorded.ended.extend((0..6).filter(|number| lost.contains(&exec_id(*number))));
        }
        Operation::Append => drop(store.append(event(1)).await?),
        // Removes nothing: the id of a removed exec could be recorded again, with a second outcome.
        Operation::PruneExecs => {
            assert_eq!(store.prune_execs((0..6).map(exec_id).collect(), at(0), at(4), "law").await?, 0)
        }
        Operation::PruneAudit(count) => drop(store.prune_audit(Keep::Newest(100 + count), at(4), "law").await?),
    }
    Ok(recorded)
}

/// Runs groups of concurrent operations. The chain verifies after each group, and every exec has at
/// most one intent and one outcome, with exactly one entry for each.
pub async fn any_interleaving_keeps_chain_intact(db: TestDatabase) {
    let cases = if db.is_sqlite() { 40 } else { 12 };
    let groups = proptest::collection::vec(proptest::collection::vec(operation(), 1..12), 1..6);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let number = AtomicU32::new(0);
    let runtime = tokio::runtime::Handle::current();
    let outcome = tokio::task::block_in_place(|| {
        runner.run(&groups, |groups| {
            let number = number.fetch_add(1, Ordering::Relaxed);
            runtime.block_on(async {
                let db = db.another(number).await;
                check(&db, groups).await
            })
        })
    });
    outcome.unwrap();
}

fn check(db: &TestDatabase, groups: Vec<Vec<Operation>>) -> BoxFuture<'_, Result<(), TestCaseError>> {
    async move {
        let store = db.open().await;
        let mut intents: BTreeMap<u64, u32> = BTreeMap::new();
        let mut outcomes: BTreeMap<u64, u32> = BTreeMap::new();
        for group in &groups {
            for outcome in join_all(group.iter().map(|operation| perform(&store, operation))).await {
                let recorded = match outcome {
                    Ok(recorded) => recorded,
                    Err(Error::ExecIdTaken(_) | Error::UnknownExec(_) | Error::NotWaiting { .. }) => continue,
                    Err(error) => return Err(TestCaseError::fail(format!("{error:?}"))),
                };
                recorded.intended.into_iter().for_each(|number| *intents.entry(number).or_default() += 1);
                recorded.ended.into_iter().for_each(|number| *outcomes.entry(number).or_default() += 1);
            }
            assert_intact(&store).await;
        }
        for number in 0..6 {
            let exec = store
                .exec(&exec_id(number), &Scope::All)
                .await
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            let filter =
                AuditFilter { subject: Some(exec_id(number).to_string()), ..AuditFilter::everything(Scope::All) };
            let entries = store.audit(&filter, Limit::nearest(1000), None).await.unwrap().items;
            let count =
                |actions: &[&str]| entries.iter().filter(|entry| actions.contains(&entry.action.as_str())).count();
            let intended = intents.get(&number).copied().unwrap_or_default();
            let ended = outcomes.get(&number).copied().unwrap_or_default();
            prop_assert_eq!(u32::from(exec.is_some()), intended);
            prop_assert_eq!(u32::from(exec.is_some_and(|exec| exec.summary.status.is_ended())), ended);
            prop_assert_eq!(count(&["exec.intent", "exec.denied"]), usize::try_from(intended).unwrap());
            prop_assert_eq!(count(&["exec.outcome", "exec.lost", "exec.denied"]), usize::try_from(ended).unwrap());
        }
        store.close().await;
        Ok(())
    }
    .boxed()
}
