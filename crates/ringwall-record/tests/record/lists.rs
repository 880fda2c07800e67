//! Pages, filters and scopes of exec lists, compared with a list in memory.

use futures::future::join_all;
use ringwall_ids::{AgentId, UserId};
use ringwall_record::{ExecListFilter, ExecSummary, FinalStatus, Limit, NewExec, Scope, Status, Store};

use crate::database::TestDatabase;
use crate::samples::{denied, ended, exec_id, queued, running};

async fn fill(store: &Store) -> Vec<ExecSummary> {
    let mut unfinished = Vec::new();
    for number in 0..120_u64 {
        let base = match number % 4 {
            0 => queued(number),
            1 => denied(number),
            _ => running(number),
        };
        let new = NewExec {
            user_id: ["ann", "bob"][usize::from(number % 3 == 0)].parse().unwrap(),
            agent_id: format!("agent-{}", number % 2).parse().unwrap(),
            project_id: format!("project {}", number % 5),
            task_id: (number % 2 == 0).then(|| format!("task {}", number % 7)),
            ..base
        };
        store.intend(&new).await.unwrap();
        unfinished.extend((number % 4 == 2).then_some(new));
    }
    for outcome in join_all(unfinished.iter().map(|exec| store.finish(exec, &ended(FinalStatus::Succeeded)))).await {
        outcome.unwrap();
    }
    let mut all = Vec::new();
    for number in (0..120).rev() {
        all.push(store.exec(&exec_id(number), &Scope::All).await.unwrap().unwrap().summary);
    }
    all
}

fn is_seen(scope: &Scope, user: &UserId, agent: &AgentId) -> bool {
    match scope {
        Scope::All => true,
        Scope::User(owner) => owner == user,
        Scope::Agent(owner, one) => owner == user && one == agent,
    }
}

fn scopes() -> [Scope; 4] {
    [
        Scope::All,
        Scope::User("ann".parse().unwrap()),
        Scope::Agent("bob".parse().unwrap(), "agent-0".parse().unwrap()),
        Scope::User("nobody".parse().unwrap()),
    ]
}

pub async fn pages_match_model(db: TestDatabase) {
    let store = db.open().await;
    let all = fill(&store).await;
    for scope in scopes() {
        for project_id in [None, Some("project 3".to_owned())] {
            for task_id in [None, Some("task 4".to_owned())] {
                for status in [None, Some(Status::Succeeded), Some(Status::Lost)] {
                    let filter = ExecListFilter {
                        scope: scope.clone(),
                        project_id: project_id.clone(),
                        task_id: task_id.clone(),
                        status,
                    };
                    let expected = all.iter().filter(|one| {
                        is_seen(&scope, &one.user_id, &one.agent_id)
                            && project_id.as_ref().is_none_or(|wanted| *wanted == one.project_id)
                            && (task_id.is_none() || task_id == one.task_id)
                            && status.is_none_or(|wanted| wanted == one.status)
                    });
                    let expected: Vec<ExecSummary> = expected.cloned().collect();
                    assert_eq!(all_pages(&store, &filter, 7).await, expected, "{filter:?}");
                }
            }
        }
    }
}

async fn all_pages(store: &Store, filter: &ExecListFilter, limit: u64) -> Vec<ExecSummary> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.list(filter, Limit::nearest(limit), cursor).await.unwrap();
        assert!(page.items.len() <= usize::try_from(limit).unwrap());
        items.extend(page.items);
        match page.next {
            // Through the text form, as clients pass it.
            Some(next) => cursor = Some(next.to_string().parse().unwrap()),
            None => return items,
        }
    }
}

pub async fn exec_outside_scope_is_missing(db: TestDatabase) {
    let store = db.open().await;
    let all = fill(&store).await;
    for scope in scopes() {
        for one in &all {
            let found = store.exec(&one.exec_id, &scope).await.unwrap();
            assert_eq!(found.is_some(), is_seen(&scope, &one.user_id, &one.agent_id), "{scope:?} {one:?}");
        }
    }
}
