//! A database that another process has locked.

use ringwall_service::{Status, Stream};
use sqlx::{Connection, SqliteConnection};

use crate::fixture::{Fixture, HELD, in_fixture, shell};

/// Locks the database against other writers until the transaction ends.
async fn hold_the_database(fixture: &Fixture) -> SqliteConnection {
    let path = fixture.directory.path().join("db.sqlite");
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
    connection
}

async fn let_go(mut connection: SqliteConnection) {
    sqlx::query("ROLLBACK").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

pub fn exec_does_not_run_without_recorded_intent() {
    in_fixture(async |fixture| {
        // After a first exec the workspace is registered, so that the next write is an exec's
        // intent.
        fixture.run_shell("true").await;
        let held = hold_the_database(fixture).await;
        let refused = fixture.refused(shell("touch ran")).await;
        assert_eq!(refused.code(), "BUSY");
        assert_eq!((fixture.service.metrics().running, fixture.service.metrics().waiting), (0, 0));
        // The artifacts of the first exec; the rejected one has none.
        assert_eq!(std::fs::read_dir(fixture.project("default", "artifacts")).unwrap().count(), 1);
        let_go(held).await;
        let view = fixture.run_shell("ls").await;
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "");
    });
}

pub fn outcome_is_recorded_once_database_is_unlocked() {
    in_fixture(async |fixture| {
        let exec_id = fixture.service.submit(&fixture.owner, shell(HELD)).await.unwrap().exec_id;
        let held = hold_the_database(fixture).await;
        fixture.release("default");
        // The command has ended, but its ending cannot be recorded, so it is not reported.
        fixture.printed(&exec_id, "held\nreleased\n").await;
        let refused = fixture.refused(shell("true")).await;
        assert_eq!(refused.code(), "BUSY");
        assert_eq!(fixture.service.exec(&fixture.owner, &exec_id).await.unwrap().summary.status, Status::Running);
        let_go(held).await;
        let view = fixture.service.finished(&fixture.owner, &exec_id).await.unwrap();
        assert_eq!(view.summary.status, Status::Succeeded);
    });
}
