//! Kills while the command runs, and at random moments.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tests::support::actor::Mode;

use crate::traces::{Host, RunningProgram, host, kill};

/// A shell with three children: an ordinary one, one in a session of its own, and one that ignores
/// SIGTERM.
const COMMAND_TREE: &str = "sleep 1000 & setsid sleep 1000 & (trap '' TERM INT HUP; while :; do sleep 1000; done) & \
                      echo ready >&2; wait";

fn start(host: &Host) -> RunningProgram {
    let mut run = RunningProgram::new(host.boxed().command(&["sh", "-c", COMMAND_TREE]));
    run.await_line("ready");
    run
}

fn in_each_mode(test: fn(&Host)) {
    for mode in Mode::ALL {
        if let Some(host) = host(mode) {
            test(&host);
        }
    }
}

#[test]
fn killed_program_leaves_nothing() {
    in_each_mode(|host| {
        for _ in 0..5 {
            let mut run = start(host);
            kill(run.id());
            run.child.wait().unwrap();
            host.assert_clean(&[run.id()], "program killed while the command runs");
        }
    });
}

/// If one of the processes that keep a box dies, the program ends, at the latest after SIGTERM, and
/// does the clean-up of the dead process. (Without cgroups the only such process is PID 1.)
#[test]
fn killed_helper_ends_program_and_leaves_nothing() {
    in_each_mode(|host| {
        let mut run = start(host);
        let helpers = run.helpers().len();
        assert!(helpers >= 1, "no helper process");
        kill(run.id());
        run.child.wait().unwrap();
        for depth in 0..helpers {
            let what = format!("helper {depth} of {helpers} killed while the command runs");
            let mut run = start(host);
            kill(run.helpers()[depth]);
            // The death of the process that removes the cgroups does not end a running box.
            terminate(&run);
            let status = run.ended().unwrap_or_else(|| panic!("{} {what}: the program hangs", host.mode.name()));
            assert!(!status.success(), "{} {what}: {status}", host.mode.name());
            host.assert_clean(&[run.id()], &what);
        }
    });
}

fn terminate(run: &RunningProgram) {
    rustix::process::kill_process(Pid::from_child(&run.child), Signal::TERM).unwrap();
}

#[test]
fn next_run_removes_cgroups_of_killed_processes() {
    in_each_mode(|host| {
        let mut programs = Vec::new();
        for outermost_first in [true, false, true, false] {
            let mut run = start(host);
            let mut order = run.helpers();
            order.insert(0, run.id());
            if !outermost_first {
                order.reverse();
            }
            order.into_iter().for_each(kill);
            run.child.wait().unwrap();
            programs.push(run.id());
            host.assert_clean(&[], "all processes killed");
        }
        assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
        host.assert_clean(&programs, "all processes killed, and another run after it");
    });
}

/// The removal of left-over cgroups does not affect running boxes.
#[test]
fn clean_up_keeps_running_boxes() {
    in_each_mode(|host| {
        let mut living = start(host);
        for _ in 0..3 {
            assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
        }
        assert!(living.child.try_wait().unwrap().is_none(), "another run ended a running box");
        kill(living.id());
        living.child.wait().unwrap();
        host.assert_clean(&[living.id()], "program killed beside others");
    });
}

#[test]
fn program_killed_at_random_moments_leaves_nothing() {
    in_each_mode(|host| kill_at_random_moments(host, false));
}

#[test]
fn processes_killed_at_random_moments_leave_nothing() {
    in_each_mode(|host| kill_at_random_moments(host, true));
}

/// The delay chooses a random moment of the kill; it is not a wait for an event.
fn kill_at_random_moments(host: &Host, all: bool) {
    let soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut programs = Vec::new();
    for round in 0..if soak { 2000 } else { 50 } {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = Duration::from_micros((state >> 33) % 8000);
        let mut command = host.boxed().command(&["sh", "-c", COMMAND_TREE]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while began.elapsed() < delay {
            std::thread::yield_now();
        }
        let family = if all { tests::support::host::descendants(child.id()).unwrap() } else { Vec::new() };
        kill(child.id());
        family.into_iter().for_each(kill);
        child.wait().unwrap();
        programs.push(child.id());
        let programs = if all { &[] } else { &programs[programs.len() - 1..] };
        host.assert_clean(programs, &format!("round {round}, killed after {delay:?}"));
    }
    assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
    host.assert_clean(&programs, "killed at random, and another run after it");
}
