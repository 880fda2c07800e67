//! A database that another process has locked.

use ringwall_service::{Status, Stream};
use sqlx::{Connection, SqliteConnection};

use crate::lab::{HELD, Lab, in_lab, shell};

/// Locks the database against other writers until the transaction ends.
async fn hold_the_database(lab: &Lab) -> SqliteConnection {
    let path = lab.directory.path().join("db.sqlite");
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
    connection
}

async fn let_go(mut connection: SqliteConnection) {
    sqlx::query("ROLLBACK").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

pub fn without_a_record_nothing_runs() {
    in_lab(async |lab| {
        // After a first exec the workspace is registered, so that the next write is an exec's
        // intent.
        lab.run_shell("true").await;
        let held = hold_the_database(lab).await;
        let refused = lab.refused(shell("touch ran")).await;
        assert_eq!(refused.code(), "BUSY");
        assert_eq!((lab.service.metrics().running, lab.service.metrics().waiting), (0, 0));
        // The artifacts of the first exec; the rejected one has none.
        assert_eq!(std::fs::read_dir(lab.project("default", "artifacts")).unwrap().count(), 1);
        let_go(held).await;
        let view = lab.run_shell("ls").await;
        assert_eq!(lab.text(&view, Stream::Stdout).await, "");
    });
}

pub fn an_ending_is_recorded_when_it_can_be() {
    in_lab(async |lab| {
        let exec_id = lab.service.submit(&lab.owner, shell(HELD)).await.unwrap().exec_id;
        let held = hold_the_database(lab).await;
        lab.release("default");
        // The command has ended, but its ending cannot be recorded, so it is not reported.
        lab.printed(&exec_id, "held\nreleased\n").await;
        let refused = lab.refused(shell("true")).await;
        assert_eq!(refused.code(), "BUSY");
        assert_eq!(lab.service.exec(&lab.owner, &exec_id).await.unwrap().summary.status, Status::Running);
        let_go(held).await;
        let view = lab.service.finished(&lab.owner, &exec_id).await.unwrap();
        assert_eq!(view.summary.status, Status::Succeeded);
    });
}
