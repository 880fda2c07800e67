//! Kills at each step of the creation of a box. With `--hold-at STEP` the program stops there and
//! says so.

use tests::support::actor::Mode;

use crate::traces::{RunningProgram, host, kill};

/// All steps of the creation of a box, in order.
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
    Program,
    /// The helper processes first, the outermost of them first, and then the program itself.
    AllProcesses,
}

#[test]
fn root_program_killed_at_each_step_leaves_nothing() {
    kill_at_each_step(Mode::Root, Victim::Program);
}

#[test]
fn rootless_program_killed_at_each_step_leaves_nothing() {
    kill_at_each_step(Mode::Rootless, Victim::Program);
}

#[test]
fn root_processes_killed_at_each_step_leave_nothing() {
    kill_at_each_step(Mode::Root, Victim::AllProcesses);
}

#[test]
fn rootless_processes_killed_at_each_step_leave_nothing() {
    kill_at_each_step(Mode::Rootless, Victim::AllProcesses);
}

fn kill_at_each_step(mode: Mode, victim: Victim) {
    let Some(host) = host(mode) else { return };
    let mut programs = Vec::new();
    let mut faults = Vec::new();
    for step in STEPS {
        let mut run = RunningProgram::new(host.boxed().option("--hold-at", step).command(&["sleep", "1000"]));
        run.await_line(&format!("ringwall: holding at {step}"));
        if matches!(victim, Victim::AllProcesses) {
            run.helpers().into_iter().for_each(kill);
        }
        kill(run.id());
        run.child.wait().unwrap();
        let found = match victim {
            Victim::Program => host.left_behind(&[run.id()]),
            Victim::AllProcesses => host.left_behind(&[]),
        };
        faults.extend(found.into_iter().map(|found| format!("{victim:?} killed at {step}: {found}")));
        programs.push(run.id());
    }
    // The next run removes cgroups that no process was left to remove.
    assert_eq!(host.boxed().run(&["true"]).unwrap().code(), Some(0));
    let found = host.left_behind(&programs);
    faults.extend(found.into_iter().map(|found| format!("after another run: {found}")));
    assert!(faults.is_empty(), "{}: {faults:#?}", mode.name());
}

/// A box that is held in its creation reacts to Ctrl-C.
#[test]
fn held_box_reacts_to_interrupt() {
    for mode in Mode::ALL {
        let Some(host) = host(mode) else { continue };
        for step in ["read_plan", "build_root", "verify_privileges"] {
            let mut run = RunningProgram::new(host.boxed().option("--hold-at", step).command(&["sleep", "1000"]));
            run.await_line(&format!("ringwall: holding at {step}"));
            let pid = rustix::process::Pid::from_child(&run.child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            assert!(run.ended().is_some(), "{} held at {step} ignores Ctrl-C", mode.name());
            host.assert_clean(&[run.id()], step);
        }
    }
}
