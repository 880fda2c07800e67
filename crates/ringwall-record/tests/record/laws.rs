//! Properties that hold after any sequence of concurrent operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ringwall_record::{AuditFilter, EndedAs, Error, Finish, Idempotency, Intent, Keep, Limit, NewExec, Scope, Store};

use crate::place::{Place, assert_intact};
use crate::samples::{at, denied, ended, event, exec_id, queued, running};

#[derive(Debug, Clone)]
enum Act {
    Intend(u64),
    IntendQueued(u64),
    IntendDenied(u64),
    IntendKeyed(u64),
    Begin(u64),
    Finish(u64, EndedAs),
    Lose,
    Append,
    PruneExecs,
    PruneAudit(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let number = 0..6_u64;
    let status = prop_oneof![Just(EndedAs::Succeeded), Just(EndedAs::Failed), Just(EndedAs::Cancelled)];
    prop_oneof![
        3 => number.clone().prop_map(Act::Intend),
        3 => number.clone().prop_map(Act::IntendQueued),
        1 => number.clone().prop_map(Act::IntendDenied),
        2 => number.clone().prop_map(Act::IntendKeyed),
        3 => number.clone().prop_map(Act::Begin),
        6 => (number, status).prop_map(|(number, status)| Act::Finish(number, status)),
        1 => Just(Act::Lose),
        2 => Just(Act::Append),
        1 => Just(Act::PruneExecs),
        1 => (0..9_u64).prop_map(Act::PruneAudit),
    ]
}

/// The execs whose intent or outcome an operation recorded.
#[derive(Debug, Default)]
struct Said {
    intended: Vec<u64>,
    ended: Vec<u64>,
}

async fn perform(store: &Store, act: &Act) -> Result<Said, Error> {
    let mut said = Said::default();
    let keyed = |number: u64| NewExec {
        idempotency: Some(Idempotency { key: "key".to_owned(), body_digest: ringwall_record::Digest::ZERO }),
        ..running(number)
    };
    match *act {
        Act::Intend(number) | Act::IntendQueued(number) | Act::IntendDenied(number) | Act::IntendKeyed(number) => {
            let new = match act {
                Act::IntendQueued(_) => queued(number),
                Act::IntendDenied(_) => denied(number),
                Act::IntendKeyed(_) => keyed(number),
                _ => running(number),
            };
            if store.intend(&new).await? == Intent::Recorded {
                said.intended.push(number);
                if matches!(act, Act::IntendDenied(_)) {
                    said.ended.push(number);
                }
            }
        }
        Act::Begin(number) => store.begin(&exec_id(number), at(1)).await?,
        Act::Finish(number, status) => {
            if store.finish(&running(number), &ended(status)).await? == Finish::Recorded {
                said.ended.push(number);
            }
        }
        Act::Lose => {
            let lost = store.lose_unfinished(at(3)).await?;
            said.ended.extend((0..6).filter(|number| lost.contains(&exec_id(*number))));
        }
        Act::Append => drop(store.append(event(1)).await?),
        // Removes nothing: the id of a removed exec could be recorded again, with a second outcome.
        Act::PruneExecs => assert_eq!(store.prune_execs((0..6).map(exec_id).collect(), at(0), at(4), "law").await?, 0),
        Act::PruneAudit(count) => drop(store.prune_audit(Keep::Newest(100 + count), at(4), "law").await?),
    }
    Ok(said)
}

/// Runs groups of concurrent operations. The chain verifies after each group, and every exec has at
/// most one intent and one outcome, with exactly one entry for each.
pub async fn any_interleaving_keeps_chain_intact(place: Place) {
    let cases = if place.is_sqlite() { 40 } else { 12 };
    let groups = proptest::collection::vec(proptest::collection::vec(act(), 1..12), 1..6);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let number = AtomicU32::new(0);
    let runtime = tokio::runtime::Handle::current();
    let outcome = tokio::task::block_in_place(|| {
        runner.run(&groups, |groups| {
            let number = number.fetch_add(1, Ordering::Relaxed);
            runtime.block_on(async {
                let place = place.another(number).await;
                check(&place, groups).await
            })
        })
    });
    outcome.unwrap();
}

fn check(place: &Place, groups: Vec<Vec<Act>>) -> BoxFuture<'_, Result<(), TestCaseError>> {
    async move {
        let store = place.open().await;
        let mut intents: BTreeMap<u64, u32> = BTreeMap::new();
        let mut endings: BTreeMap<u64, u32> = BTreeMap::new();
        for group in &groups {
            for outcome in join_all(group.iter().map(|act| perform(&store, act))).await {
                let said = match outcome {
                    Ok(said) => said,
                    Err(Error::ExecIdTaken(_) | Error::UnknownExec(_) | Error::NotWaiting { .. }) => continue,
                    Err(error) => return Err(TestCaseError::fail(format!("{error:?}"))),
                };
                said.intended.into_iter().for_each(|number| *intents.entry(number).or_default() += 1);
                said.ended.into_iter().for_each(|number| *endings.entry(number).or_default() += 1);
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
            let ended = endings.get(&number).copied().unwrap_or_default();
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
