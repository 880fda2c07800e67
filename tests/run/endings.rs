//! Ends from outside: the time limit, Ctrl-C and its kind. Whatever the command thinks of them, the box is gone after.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tests::support::actor::Mode;
use tests::support::wait::wait_until;

use crate::modes::in_both_modes;
use crate::product::{Marked, boxed};

in_both_modes!(
    the_time_limit_is_124,
    the_time_limit_spares_nobody,
    a_command_that_obeys_the_time_limit_still_is_124,
    a_command_within_its_time_keeps_its_code,
    a_signal_to_the_product_ends_the_box,
    a_signal_reaches_the_command_first,
    a_second_signal_insists,
    a_stopped_command_still_ends,
);

const LAST: &str = "echo ready; sleep 1000";

fn the_time_limit_is_124(mode: Mode) {
    for (limit, least) in [("1", 1000), ("0.2", 200), ("1e-1", 100)] {
        let outcome = Marked::start(boxed(mode).option("--timeout", limit), &["sleep", "1000"]).finish();
        assert_eq!(outcome.code(), Some(124), "{}", outcome.describe());
        assert!(outcome.elapsed >= Duration::from_millis(least), "{}", outcome.describe());
    }
}

fn the_time_limit_spares_nobody(mode: Mode) {
    let deaf = "trap '' TERM INT HUP; while :; do sleep 1000; done";
    for script in [
        deaf.to_owned(),
        "sleep 1000 & sleep 1000 & wait".to_owned(),
        format!("({deaf}) & setsid sh -c \"{deaf}\" & wait"),
        "while :; do :; done".to_owned(),
    ] {
        let outcome = Marked::start(boxed(mode).option("--timeout", "0.3"), &["sh", "-c", &script]).finish();
        assert_eq!(outcome.code(), Some(124), "{script}: {}", outcome.describe());
        assert!(outcome.errors().contains("timed out"), "{script}: {}", outcome.describe());
    }
}

fn a_command_that_obeys_the_time_limit_still_is_124(mode: Mode) {
    let script = "trap 'echo obeyed; exit 0' TERM; sleep 1000 & wait";
    // Where it does not get so far in time, it is given more.
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

fn a_command_within_its_time_keeps_its_code(mode: Mode) {
    let outcome = boxed(mode).option("--timeout", "200").run(&["sh", "-c", "exit 9"]).unwrap();
    assert_eq!((outcome.code(), outcome.errors().as_str()), (Some(9), ""));
}

fn a_signal_to_the_product_ends_the_box(mode: Mode) {
    let deaf = "trap '' TERM INT HUP; echo ready; while :; do sleep 1000; done";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        for script in [LAST, deaf] {
            let mut run = Marked::start(boxed(mode), &["sh", "-c", script]);
            assert_eq!(run.live.line().unwrap(), "ready");
            // A shell that becomes its last command has no environment for a moment.
            wait_until("the mark shows", || !run.processes().is_empty());
            run.signal(signal);
            let outcome = run.finish();
            assert_eq!(outcome.code(), Some(code), "{script}: {}", outcome.describe());
        }
    }
}

fn a_signal_reaches_the_command_first(mode: Mode) {
    let script = "trap 'echo tidied; exit 5' INT; echo ready; sleep 1000 & wait";
    let mut run = Marked::start(boxed(mode), &["sh", "-c", script]);
    assert_eq!(run.live.line().unwrap(), "ready");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!((outcome.code(), outcome.text().as_str()), (Some(130), "ready\ntidied\n"), "{}", outcome.describe());
}

/// A first signal alone takes a second of grace to end a deaf command; the quickest of some tries shows that the
/// second one did not wait for it, however slow the machine is on the others.
fn a_second_signal_insists(mode: Mode) {
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
    assert!(quickest < Duration::from_millis(900), "the second signal was not heard: {quickest:?}");
}

fn a_stopped_command_still_ends(mode: Mode) {
    let mut run = Marked::start(boxed(mode).option("--timeout", "3"), &["sh", "-c", "echo ready; kill -STOP $$"]);
    assert_eq!(run.live.line().unwrap(), "ready");
    let outcome = run.finish();
    assert_eq!(outcome.code(), Some(124), "{}", outcome.describe());
}
