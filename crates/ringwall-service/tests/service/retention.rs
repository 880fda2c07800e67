//! Retention: old execs are removed with their files, and the rest of the audit chain still
//! verifies. Tests pass the current time, so they do not wait.

use ringwall_service::{Pruned, Status, Timestamp};
use serde_json::json;
use sqlx::{Connection, SqliteConnection};

use crate::fixture::{Fixture, HELD, in_fixture, shell};

const DAY: i64 = 24 * 60 * 60 * 1000;

fn days_from_now(days: i64) -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_milliseconds(i64::try_from(now.as_millis()).unwrap() + days * DAY)
}

fn kept(fixture: &Fixture) -> usize {
    std::fs::read_dir(fixture.project("default", "artifacts")).unwrap().count()
}

async fn is_intact(fixture: &Fixture) -> bool {
    fixture.service.verify_audit(&fixture.owner, None, |_| {}).await.unwrap().is_intact()
}

pub fn old_execs_are_removed_with_their_files() {
    in_fixture(async |fixture| {
        let ended = fixture.run_shell("echo x > /workspace/artifacts/x; echo y > /workspace/work/y").await;
        let running = fixture.service.submit(&fixture.owner, shell(HELD)).await.unwrap().exec_id;
        // An exec creates its directories when it starts.
        fixture.printed(&running, "held\n").await;
        assert_eq!(fixture.service.prune(days_from_now(1000)).await.unwrap(), Pruned::default(), "unless it is set");
        fixture.set(json!({"retention": {"execs_days": 2}})).await;
        assert_eq!(fixture.service.prune(days_from_now(1)).await.unwrap(), Pruned::default());
        assert_eq!(kept(fixture), 2);
        assert_eq!(fixture.service.prune(days_from_now(3)).await.unwrap(), Pruned { execs: 1, entries: 0 });
        let gone = fixture.service.exec(&fixture.owner, &ended.summary.exec_id).await;
        assert_eq!(gone.unwrap_err().code(), "NOT_FOUND");
        assert_eq!(kept(fixture), 1, "what still runs stays");
        assert!(fixture.project("default", "work").join("y").exists(), "the project itself is nobody's exec");
        fixture.release("default");
        let view = fixture.service.finished(&fixture.owner, &running).await.unwrap();
        assert_eq!(view.summary.status, Status::Succeeded);
        assert_eq!(fixture.service.prune(days_from_now(3)).await.unwrap().execs, 1);
        assert_eq!(kept(fixture), 0);
        assert!(is_intact(fixture).await);
    });
}

/// More execs than fit in one batch.
pub fn old_execs_are_removed_in_batches() {
    in_fixture(async |fixture| {
        fixture.set(json!({"retention": {"execs_days": 1}})).await;
        for _ in 0..120 {
            let denied = ringwall_service::ExecRequest { kind: "perl".to_owned(), ..shell("true") };
            assert_eq!(fixture.refused(denied).await.code(), "POLICY_DENIED");
        }
        assert_eq!(fixture.service.prune(days_from_now(2)).await.unwrap().execs, 120);
        assert!(is_intact(fixture).await);
    });
}

pub fn chain_verifies_after_removal_of_old_entries() {
    in_fixture(async |fixture| {
        fixture.run_shell("true").await;
        fixture.set(json!({"retention": {"audit_days": 1}})).await;
        assert_eq!(fixture.service.prune(days_from_now(0)).await.unwrap(), Pruned::default());
        let pruned = fixture.service.prune(days_from_now(2)).await.unwrap();
        assert!(pruned.entries >= 3 && pruned.execs == 0, "{pruned:?}");
        assert!(is_intact(fixture).await);
        fixture.run_shell("true").await;
        assert!(is_intact(fixture).await);
    });
}

/// A step that fails does not prevent the other steps.
pub fn failed_retention_step_does_not_stop_others() {
    in_fixture(async |fixture| {
        fixture.run_shell("true").await;
        fixture.set(json!({"retention": {"execs_days": 1, "audit_days": 1}})).await;
        let path = fixture.directory.path().join("db.sqlite");
        let mut record = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
        sqlx::query("ALTER TABLE browser_actions RENAME TO hidden").execute(&mut record).await.unwrap();
        let pruned = fixture.service.prune(days_from_now(2)).await.unwrap();
        assert!(pruned.execs == 1 && pruned.entries >= 3, "{pruned:?}");
        sqlx::query("ALTER TABLE hidden RENAME TO browser_actions").execute(&mut record).await.unwrap();
    });
}
