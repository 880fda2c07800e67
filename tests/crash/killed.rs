//! Kills while the command runs, and at moments that nobody chose.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tests::support::actor::Mode;

use crate::traces::{Host, Started, host, kill};

/// A family: children, one in a session of its own, one that hears no polite signal.
const FAMILY: &str = "sleep 1000 & setsid sleep 1000 & (trap '' TERM INT HUP; while :; do sleep 1000; done) & \
                      echo ready >&2; wait";

fn start(host: &Host) -> Started {
    let mut run = Started::new(host.boxed().command(&["sh", "-c", FAMILY]));
    run.await_line("ready");
    run
}

fn each_mode(test: fn(&Host)) {
    for mode in Mode::ALL {
        if let Some(host) = host(mode) {
            test(&host);
        }
    }
}

#[test]
fn the_product_alone() {
    each_mode(|host| {
        for _ in 0..5 {
            let mut run = start(host);
            kill(run.id());
            run.child.wait().unwrap();
            host.assert_clean(&[run.id()], "product killed while the command runs");
        }
    });
}

/// Whichever of the processes that keep the box dies, the product comes to an end, at the latest when it is asked to,
/// and cleans up what the dead one would have. (Without cgroups PID 1 is the only one.)
#[test]
fn each_keeper_of_the_box_alone() {
    each_mode(|host| {
        let mut run = start(host);
        let keepers = run.keepers().len();
        assert!(keepers >= 1, "nobody keeps a box");
        kill(run.id());
        run.child.wait().unwrap();
        for depth in 0..keepers {
            let what = format!("keeper {depth} of {keepers} killed while the command runs");
            let mut run = start(host);
            kill(run.keepers()[depth]);
            // The undertaker is not missed by a box that runs.
            terminate(&run);
            let status = run.ended().unwrap_or_else(|| panic!("{} {what}: the product hangs", host.mode.name()));
            assert!(!status.success(), "{} {what}: {status}", host.mode.name());
            host.assert_clean(&[run.id()], &what);
        }
    });
}

fn terminate(run: &Started) {
    rustix::process::kill_process(Pid::from_child(&run.child), Signal::TERM).unwrap();
}

#[test]
fn everyone_and_the_next_run_sweeps() {
    each_mode(|host| {
        let mut makers = Vec::new();
        for outermost_first in [true, false, true, false] {
            let mut run = start(host);
            let mut order = run.keepers();
            order.insert(0, run.id());
            if !outermost_first {
                order.reverse();
            }
            order.into_iter().for_each(kill);
            run.child.wait().unwrap();
            makers.push(run.id());
            host.assert_clean(&[], "everyone killed");
        }
        assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
        host.assert_clean(&makers, "everyone killed, and another run after it");
    });
}

/// A run that sweeps never harms a box that lives.
#[test]
fn sweeping_spares_the_living() {
    each_mode(|host| {
        let mut living = start(host);
        for _ in 0..3 {
            assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
        }
        assert!(living.child.try_wait().unwrap().is_none(), "a sweep ended a living box");
        kill(living.id());
        living.child.wait().unwrap();
        host.assert_clean(&[living.id()], "product killed beside others");
    });
}

#[test]
fn the_product_at_random_moments() {
    each_mode(|host| at_random(host, false));
}

#[test]
fn everyone_at_random_moments() {
    each_mode(|host| at_random(host, true));
}

/// The pause is the randomness, not a wait for anything: every moment must be a good one to be killed in.
fn at_random(host: &Host, everyone: bool) {
    let soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut makers = Vec::new();
    for round in 0..if soak { 2000 } else { 50 } {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay = Duration::from_micros((state >> 33) % 8000);
        let mut command = host.boxed().command(&["sh", "-c", FAMILY]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while began.elapsed() < delay {
            std::thread::yield_now();
        }
        let family = if everyone { tests::support::host::descendants(child.id()).unwrap() } else { Vec::new() };
        kill(child.id());
        family.into_iter().for_each(kill);
        child.wait().unwrap();
        makers.push(child.id());
        let makers = if everyone { &[] } else { &makers[makers.len() - 1..] };
        host.assert_clean(makers, &format!("round {round}, killed after {delay:?}"));
    }
    assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
    host.assert_clean(&makers, "killed at random, and another run after it");
}
