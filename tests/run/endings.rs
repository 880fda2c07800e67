//! The time limit and signals to `ringwall run`. Each test checks that no process or cgroup is left.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::support::actor::Mode;
use tests::support::wait::wait_until;

use crate::modes::in_both_modes;
use crate::product::{Marked, boxed};

in_both_modes!(
    timeout_exits_with_124,
    timeout_kills_every_process,
    command_that_exits_on_sigterm_exits_with_124,
    command_within_timeout_keeps_its_exit_code,
    signal_to_ringwall_ends_the_box,
    signal_is_forwarded_to_the_command,
    second_signal_kills_the_box_at_once,
    stopped_command_is_killed_at_the_timeout,
);

const LAST: &str = "echo ready; sleep 1000";

fn timeout_exits_with_124(mode: Mode) {
    for (limit, least) in [("1", 1000), ("0.2", 200), ("1e-1", 100)] {
        let outcome = Marked::start(boxed(mode).option("--timeout", limit), &["sleep", "1000"]).finish();
        assert_eq!(outcome.code(), Some(124), "{}", outcome.describe());
        assert!(outcome.elapsed >= Duration::from_millis(least), "{}", outcome.describe());
    }
}

fn timeout_kills_every_process(mode: Mode) {
    let backlogged = "trap '' TERM INT HUP; while :; do sleep 1000; done";
    for script in [
        backlogged.to_owned(),
        "sleep 1000 & sleep 1000 & wait".to_owned(),
        format!("({backlogged}) & setsid sh -c \"{backlogged}\" & wait"),
        "while :; do :; done".to_owned(),
    ] {
        let outcome = Marked::start(boxed(mode).option("--timeout", "0.3"), &["sh", "-c", &script]).finish();
        assert_eq!(outcome.code(), Some(124), "{script}: {}", outcome.describe());
        assert!(outcome.errors().contains("timed out"), "{script}: {}", outcome.describe());
    }
}

fn command_that_exits_on_sigterm_exits_with_124(mode: Mode) {
    let script = "trap 'echo obeyed; exit 0' TERM; sleep 1000 & wait";
    // On a slow machine the shell may not have set the trap in time; then the test retries with more time.
    let mut said = String::new();
    for limit in ["0.5", "5", "50"] {
        let outcome = Marked::start(boxed(mode).option("--timeout", limit), &["sh", "-c", script]).finish();
        assert_eq!(outcome.code(), Some(124), "{}", outcome.describe());
        said = outcome.text();
        if !said.is_empty() {
            break;
        }
    }
    assert_eq!(said, "obeyed\n");
}

fn command_within_timeout_keeps_its_exit_code(mode: Mode) {
    let outcome = boxed(mode).option("--timeout", "200").run(&["sh", "-c", "exit 9"]).unwrap();
    assert_eq!((outcome.code(), outcome.errors().as_str()), (Some(9), ""));
}

fn signal_to_ringwall_ends_the_box(mode: Mode) {
    let backlogged = "trap '' TERM INT HUP; echo ready; while :; do sleep 1000; done";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        for script in [LAST, backlogged] {
            let mut run = Marked::start(boxed(mode), &["sh", "-c", script]);
            assert_eq!(run.live.line().unwrap(), "ready");
            // During the shell's execve of its last command, /proc/PID/environ is empty for a moment.
            wait_until("the mark shows", || !run.processes().is_empty());
            run.signal(signal);
            let outcome = run.finish();
            assert_eq!(outcome.code(), Some(code), "{script}: {}", outcome.describe());
        }
    }
}

fn signal_is_forwarded_to_the_command(mode: Mode) {
    let script = "trap 'echo tidied; exit 5' INT; echo ready; sleep 1000 & wait";
    let mut run = Marked::start(boxed(mode), &["sh", "-c", script]);
    assert_eq!(run.live.line().unwrap(), "ready");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!((outcome.code(), outcome.text().as_str()), (Some(130), "ready\ntidied\n"), "{}", outcome.describe());
}

/// After one signal, a command that ignores it is killed after 1 s. The fastest of five runs must be
/// faster, which excludes delays of a slow machine.
fn second_signal_kills_the_box_at_once(mode: Mode) {
    let script = "trap 'echo asked' INT; echo ready; while :; do sleep 1000 & wait; done";
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let mut run = Marked::start(boxed(mode), &["sh", "-c", script]);
        assert_eq!(run.live.line().unwrap(), "ready");
        let began = Instant::now();
        run.signal(Signal::INT);
        assert_eq!(run.live.line().unwrap(), "asked");
        run.signal(Signal::INT);
        let outcome = run.finish();
        assert_eq!(outcome.code(), Some(130), "{}", outcome.describe());
        quickest = quickest.min(began.elapsed());
    }
    assert!(quickest < Duration::from_millis(900), "the second signal did not kill the box: {quickest:?}");
}

fn stopped_command_is_killed_at_the_timeout(mode: Mode) {
    let mut run = Marked::start(boxed(mode).option("--timeout", "3"), &["sh", "-c", "echo ready; kill -STOP $$"]);
    assert_eq!(run.live.line().unwrap(), "ready");
    let outcome = run.finish();
    assert_eq!(outcome.code(), Some(124), "{}", outcome.describe());
}
