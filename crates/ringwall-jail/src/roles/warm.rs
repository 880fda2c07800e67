//! PID 1 of a warm box: complete except for the command and the files it works on.
//!
//! PID 1 keeps its capabilities, because it has to mount those files. So no tenant code may run in
//! the box before; an interpreter that waits here (`interpreter`) runs our own script. When the
//! completion arrives, PID 1 mounts the files and then follows the order of every box: Landlock,
//! capabilities, seccomp, verification, command. A warm box is used once: any failure ends it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, WaitOptions};

use crate::progress::Progress;
use crate::protocol::plan::{Assignment, Completion, WarmKind};
use crate::protocol::report::{Failure, Report, Step};
use crate::roles::command;
use crate::roles::interpreter::Interpreter;
use crate::roles::watchdog::MeterScope;
use crate::roles::{
    init,
    init::{InitState, StartedCommand},
};
use crate::setup::{restrict, restrict::FileRules};
use crate::sys::{self, BpfInstruction};
use crate::{
    protocol::wire,
    roles::start,
    setup::{identity, root},
};

/// Waits for the completion, starts the command and returns the final report.
pub(crate) fn run(
    state: InitState,
    kind: WarmKind,
    control: &OwnedFd,
    filter: &[BpfInstruction],
) -> std::result::Result<Report, Failure> {
    let InitState { plan, streams, mut protections, counters, meter, network } = state;
    let fail = |errno| Failure::new(Step::StartCommand, "", errno);
    network.enter()?;
    let rules = FileRules::new()?;
    sys::set_signal_mask(true);
    let signals = sys::signal_descriptor().map_err(fail)?;
    let (interpreter, streams) = match kind {
        WarmKind::Plain => (None, Some(streams)),
        // Without a memory cgroup PID 1 would read the memory use of the interpreter from /proc.
        // Landlock denies that once both have restricted themselves, each in a domain of its own.
        WarmKind::Python if meter.scope() == MeterScope::Everything => {
            return Err(Failure::plain(Step::StartCommand, "(a waiting interpreter needs a memory cgroup)"));
        }
        WarmKind::Python => (Some(Interpreter::start(&plan, &streams, &rules, filter, control)?), None),
    };
    let handle = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).map_err(fail)?;
    wire::send(control, &Report::Waiting, &[handle.as_fd()]).map_err(fail)?;
    drop(handle);
    wait_for_completion(control, &signals, interpreter.as_ref().map(|interpreter| interpreter.process))?;

    let (Completion { operations, access, required, assignment }, trees) = start::receive_completion(control)?;
    let mut progress = Progress::new();
    init::with_zero_umask(|| root::extend(&operations, trees))?;
    progress.done(Step::BuildRoot, control)?;
    let rules = rules.with(&access)?;
    if let Some(interpreter) = &interpreter {
        interpreter.request_restriction()?;
    }
    protections.push(rules.enforce()?);
    restrict::require(&required, &protections)?;
    progress.done(Step::RestrictFiles, control)?;
    identity::drop_privileges()?;
    progress.done(Step::DropPrivileges, control)?;
    sys::install_filter(filter).map_err(|errno| Failure::new(Step::FilterCalls, "", errno))?;
    progress.done(Step::FilterCalls, control)?;
    identity::verify(&plan.identity)?;
    progress.done(Step::VerifyPrivileges, control)?;
    if let Some(interpreter) = &interpreter {
        interpreter.expect_restriction(control)?;
    }
    if let Assignment::RunCode { directory, .. } = &assignment {
        // Checks with the privileges of the command that it can enter its directory, because the
        // interpreter could not report a failure.
        let entered = rustix::process::chdir(directory).and_then(|()| rustix::process::chdir(c"/"));
        entered.map_err(|errno| Failure::new(Step::StartCommand, directory.to_string_lossy(), errno))?;
    }
    init::add_unreported(&mut protections);
    let started = Report::Started { protections, steps: progress.into_times() };
    wire::send(control, &started, &[]).map_err(|errno| Failure::new(Step::StartCommand, "(reporting)", errno))?;
    let (command, cpu_before) = match (assignment, interpreter, streams) {
        (Assignment::RunCode { input, .. }, Some(interpreter), _) => {
            let (process, cpu_used) = (interpreter.process, sys::cpu_time(interpreter.process).unwrap_or(0));
            interpreter.send_input(&input);
            (process, cpu_used)
        }
        (Assignment::Execute(command), None, Some(streams)) => {
            let mut child = || command::execute(&command, &streams, control.as_fd());
            (sys::start_vfork(&mut child).map_err(fail)?, 0)
        }
        _ => return Err(Failure::plain(Step::ReadPlan, "(the command does not fit this kind of warm box)")),
    };
    Ok(init::wait_and_report(StartedCommand { command, meter, counters, cpu_before }, &signals, control))
}

/// Waits for a message. If the interpreter ends, the box is of no use.
fn wait_for_completion(
    control: &OwnedFd,
    signals: &OwnedFd,
    interpreter: Option<Pid>,
) -> std::result::Result<(), Failure> {
    loop {
        let mut events = [
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut events, None);
        while sys::read_signal(signals.as_fd()).is_ok() {}
        if let Some(interpreter) = interpreter
            && !matches!(rustix::process::waitpid(Some(interpreter), WaitOptions::NOHANG), Ok(None))
        {
            return Err(Failure::plain(Step::StartCommand, "(the interpreter of the warm box ended)"));
        }
        if !events[0].revents().is_empty() {
            return Ok(());
        }
    }
}
