//! Failures caused from outside: processes around a box are killed or stopped.

use std::path::Path;

use ringwall_service::{ExecId, Status, Stream};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::fixture::{Fixture, HELD, in_fixture, reason, seen, shell};

/// The pids of a process's children.
fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    listed.flat_map(|line| line.split_whitespace().map(|number| number.parse().unwrap()).collect::<Vec<_>>()).collect()
}

/// The pid of the spawner, the parent of this process's boxes. (The service's tests run one at a
/// time.)
fn spawner() -> u32 {
    let is_jail = |number: &u32| {
        std::fs::read(format!("/proc/{number}/cmdline"))
            .is_ok_and(|line| line.starts_with(ringwall_jail::PROCESS_NAME.as_bytes()))
    };
    let found: Vec<u32> = children(std::process::id()).into_iter().filter(is_jail).collect();
    let [number] = found[..] else { panic!("spawners: {found:?}") };
    number
}

fn signal(number: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(number).unwrap()).unwrap(), signal).unwrap();
}

/// Starts an exec that waits to be released.
async fn held(fixture: &Fixture) -> ExecId {
    let exec_id = fixture.service.submit(&fixture.owner, shell(HELD)).await.unwrap().exec_id;
    fixture.printed(&exec_id, "held\n").await;
    exec_id
}

async fn assert_failed_and_next_exec_runs(fixture: &Fixture, exec_id: &ExecId) {
    let view = fixture.service.finished(&fixture.owner, exec_id).await.unwrap();
    assert_eq!((view.summary.status, view.summary.exit_code), (Status::Failed, Some(137)));
    assert_eq!(reason(&view), "RUNTIME_ERROR");
    // The command ran, so this is a failed exec and not a failed request.
    assert!(view.failure().is_none());
    assert_eq!(fixture.run_shell("true").await.summary.status, Status::Succeeded);
}

pub fn killed_spawner_fails_exec() {
    in_fixture(async |fixture| {
        let exec_id = held(fixture).await;
        signal(spawner(), Signal::KILL);
        assert_failed_and_next_exec_runs(fixture, &exec_id).await;
    });
}

/// 24 processes with 20 MiB each: the kernel needs a moment to destroy them.
const CROWD: &str = "for i in {1..24}; do /usr/bin/python3 -c 'x = b\"x\" * (20 << 20); print(1, flush=True); \
                     import time; time.sleep(1000)' & done; wait";

pub fn killed_init_fails_exec_after_its_processes_ended() {
    in_fixture(async |fixture| {
        // Warm boxes would be children of the spawner too.
        fixture.set(json!({ "pool": { "min_instances": 0 } })).await;
        let exec_id = fixture.service.submit(&fixture.owner, shell(CROWD)).await.unwrap().exec_id;
        fixture.printed(&exec_id, &"1\n".repeat(24)).await;
        let init = seen("the one box that is left", async || match children(spawner())[..] {
            [init] => Some(init),
            _ => None,
        })
        .await;
        let [shell] = children(init)[..] else { panic!("more than one command") };
        let crowd = children(shell);
        assert_eq!(crowd.len(), 24);
        signal(init, Signal::KILL);
        fixture.service.finished(&fixture.owner, &exec_id).await.unwrap();
        let left: Vec<&u32> = crowd.iter().filter(|one| Path::new(&format!("/proc/{one}")).exists()).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_failed_and_next_exec_runs(fixture, &exec_id).await;
    });
}

/// Takes 10 s, the timeout for starting a box.
pub fn stopped_spawner_is_replaced() {
    in_fixture(async |fixture| {
        // A warm box would not need the spawner.
        fixture.set(json!({ "pool": { "min_instances": 0 } })).await;
        let running = held(fixture).await;
        let stopped = spawner();
        signal(stopped, Signal::STOP);
        let cancelled = fixture.service.submit(&fixture.owner, shell("touch cancelled")).await.unwrap().exec_id;
        let (given_up, cancelled) =
            tokio::join!(fixture.run_shell("touch ran"), fixture.service.cancel(&fixture.owner, &cancelled));
        assert_eq!(reason(&given_up), "RUNTIME_ERROR");
        let failure = given_up.failure().unwrap();
        assert!(failure.to_string().contains("10 s"), "{failure}");
        assert_eq!(cancelled.unwrap().summary.status, Status::Cancelled);
        // The next box has a new spawner, and the running box is not affected.
        assert_eq!(fixture.run_shell("true").await.summary.status, Status::Succeeded);
        fixture.release("default");
        assert_eq!(fixture.service.finished(&fixture.owner, &running).await.unwrap().summary.status, Status::Succeeded);
        // After SIGCONT the old spawner has nothing to do and exits with its last box.
        signal(stopped, Signal::CONT);
        let view = fixture.run_shell("ls").await;
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "go\n");
        let is_gone = async || (!Path::new(&format!("/proc/{stopped}")).exists()).then_some(());
        seen("the end of the spawner that stood still", is_gone).await;
        assert_ne!(spawner(), stopped);
    });
}
