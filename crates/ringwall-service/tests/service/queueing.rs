//! The queue of execs, with execs that wait to be released.

use ringwall_service::{AuditFilter, ExecId, Limit, Scope, Status};
use serde_json::json;

use crate::lab::{HELD, Lab, in_lab, shell, shell_of};

/// Ended execs in order of their end. With one running exec at a time, this is also the order of
/// their start.
async fn ended(lab: &Lab) -> Vec<String> {
    let filter = AuditFilter::everything(Scope::All);
    let page = lab.service.audit(&lab.owner, filter, Limit::nearest(1000), None).await.unwrap();
    let begun = page.items.into_iter().rev().filter(|entry| entry.action == "exec.outcome");
    begun.map(|entry| entry.subject).collect()
}

pub fn users_take_turns() {
    in_lab(async |lab| {
        lab.set(json!({"sandbox": {"max_concurrent_execs": 1}})).await;
        let submit = async |user: &str, script: &str| {
            let submitted = lab.service.submit(&lab.owner, shell_of(user, script)).await.unwrap();
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
        assert_eq!((lab.service.metrics().running, lab.service.metrics().waiting), (1, 6));
        lab.release("a");
        for id in &ids {
            let view = lab.service.finished(&lab.owner, id).await.unwrap();
            assert_eq!(view.summary.status, Status::Succeeded);
            assert!(view.summary.started_at.is_some());
        }
        let expected: Vec<&str> = [0, 3, 4, 1, 5, 2].iter().map(|index| ids[*index].as_str()).collect();
        assert_eq!(ended(lab).await[1..], expected);
    });
}

pub fn the_queue_is_bounded() {
    in_lab(async |lab| {
        lab.set(json!({"sandbox": {"max_concurrent_execs": 1, "max_queued_execs": 2}})).await;
        let mut ids = Vec::new();
        for script in [HELD, "true", "true"] {
            ids.push(lab.service.submit(&lab.owner, shell(script)).await.unwrap().exec_id);
        }
        assert_eq!(lab.refused(shell("true")).await.code(), "QUEUE_FULL");
        // A higher limit of running execs starts waiting ones.
        lab.set(json!({"sandbox": {"max_concurrent_execs": 2}})).await;
        lab.service.finished(&lab.owner, &ids[1]).await.unwrap();
        lab.service.finished(&lab.owner, &ids[2]).await.unwrap();
        lab.release("default");
        lab.service.finished(&lab.owner, &ids[0]).await.unwrap();
    });
}

pub fn a_waiting_exec_can_be_cancelled() {
    in_lab(async |lab| {
        lab.set(json!({"sandbox": {"max_concurrent_execs": 1}})).await;
        let running = lab.service.submit(&lab.owner, shell(HELD)).await.unwrap().exec_id;
        let waiting = lab.service.submit(&lab.owner, shell("touch ran")).await.unwrap().exec_id;
        let view = lab.service.cancel(&lab.owner, &waiting).await.unwrap();
        assert_eq!((view.summary.status, view.summary.started_at), (Status::Cancelled, None));
        lab.release("default");
        let view = lab.service.finished(&lab.owner, &running).await.unwrap();
        assert_eq!(view.summary.status, Status::Succeeded);
        assert!(!lab.project("default", "work").join("ran").exists());
        assert_eq!((lab.service.metrics().running, lab.service.metrics().waiting), (0, 0));
    });
}
