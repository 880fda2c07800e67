//! A kill at each step in which a box is made. The product holds at the step when asked to, and says so.

use tests::support::actor::Mode;

use crate::traces::{Started, host, kill};

/// Every step at which a box in the making can be held, in order.
const STEPS: [&str; 18] = [
    "make_namespaces",
    "read_plan",
    "make_cgroups",
    "open_sources",
    "map_identity",
    "take_identity",
    "detach_mounts",
    "build_root",
    "enter_root",
    "set_hostname",
    "open_terminal",
    "join_cgroups",
    "enter_network",
    "limit_resources",
    "restrict_files",
    "drop_privileges",
    "filter_calls",
    "verify_privileges",
];

#[derive(Clone, Copy, Debug)]
enum Victim {
    Product,
    /// Its helpers first, outermost first, so that whatever watches for a death has to notice each.
    Everyone,
}

#[test]
fn root_product_killed_at_each_step() {
    at_each_step(Mode::Root, Victim::Product);
}

#[test]
fn rootless_product_killed_at_each_step() {
    at_each_step(Mode::Rootless, Victim::Product);
}

#[test]
fn root_everyone_killed_at_each_step() {
    at_each_step(Mode::Root, Victim::Everyone);
}

#[test]
fn rootless_everyone_killed_at_each_step() {
    at_each_step(Mode::Rootless, Victim::Everyone);
}

fn at_each_step(mode: Mode, victim: Victim) {
    let Some(host) = host(mode) else { return };
    let mut makers = Vec::new();
    let mut faults = Vec::new();
    for step in STEPS {
        let mut run = Started::new(host.boxed().option("--hold-at", step).command(&["sleep", "1000"]));
        run.await_line(&format!("ringwall: holding at {step}"));
        if matches!(victim, Victim::Everyone) {
            run.keepers().into_iter().for_each(kill);
        }
        kill(run.id());
        run.child.wait().unwrap();
        let found = match victim {
            Victim::Product => host.left_behind(&[run.id()]),
            Victim::Everyone => host.left_behind(&[]),
        };
        faults.extend(found.into_iter().map(|found| format!("{victim:?} killed at {step}: {found}")));
        makers.push(run.id());
    }
    // Whatever nobody was left to remove, the next run removes.
    assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
    let found = host.left_behind(&makers);
    faults.extend(found.into_iter().map(|found| format!("after another run: {found}")));
    assert!(faults.is_empty(), "{}: {faults:#?}", mode.name());
}

/// What is told to hold and left alone still ends by Ctrl-C.
#[test]
fn a_held_box_can_be_interrupted() {
    for mode in Mode::ALL {
        let Some(host) = host(mode) else { continue };
        for step in ["read_plan", "build_root", "verify_privileges"] {
            let mut run = Started::new(host.boxed().option("--hold-at", step).command(&["sleep", "1000"]));
            run.await_line(&format!("ringwall: holding at {step}"));
            let pid = rustix::process::Pid::from_child(&run.child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            assert!(run.ended().is_some(), "{} held at {step} ignores Ctrl-C", mode.name());
            host.assert_clean(&[run.id()], step);
        }
    }
}
