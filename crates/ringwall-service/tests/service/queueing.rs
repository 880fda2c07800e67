//! The queue of execs, with execs that wait to be released.

use ringwall_service::{AuditFilter, ExecId, Limit, Scope, Status};
use serde_json::json;

use crate::fixture::{Fixture, HELD, in_fixture, shell, shell_of};

/// Ended execs in order of their end. With one running exec at a time, this is also the order of
/// their start.
async fn ended(fixture: &Fixture) -> Vec<String> {
    let filter = AuditFilter::everything(Scope::All);
    let page = fixture.service.audit(&fixture.owner, filter, Limit::nearest(1000), None).await.unwrap();
    let begun = page.items.into_iter().rev().filter(|entry| entry.action == "exec.outcome");
    begun.map(|entry| entry.subject).collect()
}

pub fn queue_alternates_between_users() {
    in_fixture(async |fixture| {
        fixture.set(json!({"sandbox": {"max_concurrent_execs": 1}})).await;
        let submit = async |user: &str, script: &str| {
            let submitted = fixture.service.submit(&fixture.owner, shell_of(user, script)).await.unwrap();
            (submitted.exec_id, submitted.status)
        };
        let (_, status) = submit("a", HELD).await;
        assert_eq!(status, Status::Running);
        let mut ids: Vec<ExecId> = Vec::new();
        for user in ["a", "a", "a", "b", "c", "b"] {
            let (id, status) = submit(user, "true").await;
            assert_eq!(status, Status::Queued);
            ids.push(id);
        }
        assert_eq!((fixture.service.metrics().running, fixture.service.metrics().waiting), (1, 6));
        fixture.release("a");
        for id in &ids {
            let view = fixture.service.finished(&fixture.owner, id).await.unwrap();
            assert_eq!(view.summary.status, Status::Succeeded);
            assert!(view.summary.started_at.is_some());
        }
        let expected: Vec<&str> = [0, 3, 4, 1, 5, 2].iter().map(|index| ids[*index].as_str()).collect();
        assert_eq!(ended(fixture).await[1..], expected);
    });
}

pub fn full_queue_rejects_exec() {
    in_fixture(async |fixture| {
        fixture.set(json!({"sandbox": {"max_concurrent_execs": 1, "max_queued_execs": 2}})).await;
        let mut ids = Vec::new();
        for script in [HELD, "true", "true"] {
            ids.push(fixture.service.submit(&fixture.owner, shell(script)).await.unwrap().exec_id);
        }
        assert_eq!(fixture.refused(shell("true")).await.code(), "QUEUE_FULL");
        // A higher limit of running execs starts waiting ones.
        fixture.set(json!({"sandbox": {"max_concurrent_execs": 2}})).await;
        fixture.service.finished(&fixture.owner, &ids[1]).await.unwrap();
        fixture.service.finished(&fixture.owner, &ids[2]).await.unwrap();
        fixture.release("default");
        fixture.service.finished(&fixture.owner, &ids[0]).await.unwrap();
    });
}

pub fn waiting_exec_can_be_cancelled() {
    in_fixture(async |fixture| {
        fixture.set(json!({"sandbox": {"max_concurrent_execs": 1}})).await;
        let running = fixture.service.submit(&fixture.owner, shell(HELD)).await.unwrap().exec_id;
        let waiting = fixture.service.submit(&fixture.owner, shell("touch ran")).await.unwrap().exec_id;
        let view = fixture.service.cancel(&fixture.owner, &waiting).await.unwrap();
        assert_eq!((view.summary.status, view.summary.started_at), (Status::Cancelled, None));
        fixture.release("default");
        let view = fixture.service.finished(&fixture.owner, &running).await.unwrap();
        assert_eq!(view.summary.status, Status::Succeeded);
        assert!(!fixture.project("default", "work").join("ran").exists());
        assert_eq!((fixture.service.metrics().running, fixture.service.metrics().waiting), (0, 0));
    });
}
