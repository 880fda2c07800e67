//! Kills a process while it writes; every acknowledged intent and outcome must be in the database.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use futures::future::join_all;
use ringwall_record::{Database, FinalStatus, Scope, Store};

use crate::database::{TestDatabase, assert_intact, key};
use crate::samples::{at, ended, exec_id, running};

const CHILD_DATABASE: &str = "RECORD_TEST_CHILD";

pub fn database_of_child() -> Option<Database> {
    let text = std::env::var(CHILD_DATABASE).ok()?;
    Some(if text.starts_with("postgres://") { Database::Postgres(text) } else { Database::Sqlite(PathBuf::from(text)) })
}

/// Records execs without end, 32 at once, and prints a line for each acknowledgement: `7` for an
/// intent, `7.` for an outcome.
pub fn run_child(database: Database) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(database, Some(key())).await.unwrap();
        let mut from = 0_u64;
        loop {
            join_all((from..from + 32).map(|number| {
                let store = &store;
                async move {
                    store.intend(&running(number)).await.unwrap();
                    print_line(&format!("{number}\n"));
                    store.finish(&running(number), &ended(FinalStatus::Succeeded)).await.unwrap();
                    print_line(&format!("{number}.\n"));
                }
            }))
            .await;
            from += 32;
        }
    })
}

/// One write per line, so that a kill does not leave half of it.
fn print_line(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the child to be killed is this program")]
pub async fn acknowledged_writes_survive_kill(db: TestDatabase) {
    let text = match &db.database {
        Database::Sqlite(path) => path.display().to_string(),
        Database::Postgres(url) => url.clone(),
    };
    let mut intended = 0;
    for (round, lines) in [150, 400, 777].into_iter().enumerate() {
        let db = db.another(u32::try_from(round).unwrap()).await;
        let text = match &db.database {
            Database::Sqlite(path) => path.display().to_string(),
            Database::Postgres(url) => url.clone(),
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CHILD_DATABASE, text)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut acknowledged = Vec::new();
        for _ in 0..lines {
            acknowledged.push(read_line(&mut output).unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines that are still in the pipe were acknowledged too. An incomplete line is ignored.
        acknowledged.extend(std::iter::from_fn(|| read_line(&mut output)));

        let store = db.open().await;
        for line in acknowledged {
            let number: u64 = line.trim_end_matches('.').parse().unwrap();
            let exec = store.exec(&exec_id(number), &Scope::All).await.unwrap();
            let exec = exec.unwrap_or_else(|| panic!("exec {number} was acknowledged and is missing"));
            assert!(!line.ends_with('.') || exec.summary.status.is_ended(), "the outcome of {number} is missing");
            intended += 1;
        }
        store.mark_unfinished_lost(at(1)).await.unwrap();
        assert!(store.mark_unfinished_lost(at(2)).await.unwrap().is_empty());
        assert_intact(&store).await;
        store.close().await;
        if let Database::Sqlite(path) = &db.database {
            let check: String = sqlx::query_scalar("PRAGMA integrity_check")
                .fetch_one(&sqlx::SqlitePool::connect(&path.display().to_string()).await.unwrap())
                .await
                .unwrap();
            assert_eq!(check, "ok");
        }
    }
    assert!(intended >= 150 + 400 + 777, "{text}: {intended}");
}

fn read_line(output: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.strip_suffix('\n').map(str::to_owned)
}
