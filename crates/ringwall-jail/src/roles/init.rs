//! PID 1 of a box: builds the box around itself, starts the command, reaps, and ends with the
//! command.
//!
//! The order of the steps is security relevant:
//!
//! 1. Mounts, host name and terminal come before Landlock, which forbids mounting.
//! 2. The cgroup namespace is created after joining the cgroup, which becomes its root.
//! 3. no_new_privs precedes Landlock and seccomp, which need it (or CAP_SYS_ADMIN).
//! 4. The network namespace is entered late, because it takes longest to be ready.
//! 5. Capabilities are dropped after the last step that needs them.
//! 6. The seccomp filter comes last. Then the kernel is asked which privileges are left.
//!
//! No instruction of the command runs before all steps are done (in a warm box a waiting
//! interpreter runs our own script: `warm`). When PID 1 ends for any reason, the kernel kills all
//! processes of the box.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use rustix::thread::UnshareFlags;
use rustix::time::Timespec;

use crate::progress::Progress;
use crate::protocol::plan::{Plan, Privilege, Resource, ResourceLimit, RootKind, UnixSockets, WindowSize};
use crate::protocol::report::{ControlMessage, Ending, Failure, Protection, ProtectionName, Report, Step};
use crate::roles::watchdog::MemoryMeter;
use crate::roles::{command, command::Streams};
use crate::roles::{
    start,
    start::{Limits, Start},
};
use crate::setup::cgroups::CgroupUsage;
use crate::setup::{
    network,
    network::{Network, NetworkSetup},
};
use crate::sys::{self, BpfInstruction};
use crate::{
    protocol::wire,
    roles::warm,
    setup::{cgroups, identity, restrict, root, seccomp, sources, terminal},
};

/// Namespaces of the clone. The network namespace is created concurrently (`network`), the cgroup
/// namespace after joining the cgroup.
pub(crate) const NAMESPACES: u64 =
    (libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;

/// Signals or ended processes handled per loop, so that a flood of them does not block other
/// events.
const MAX_PER_ROUND: u32 = 64;

/// Entry point of PID 1, in its new namespaces and with its ids mapped.
pub(crate) fn main(control: &OwnedFd, filter: &[BpfInstruction], network_setup: NetworkSetup) -> ! {
    let (report, code) = match run(control, filter, network_setup) {
        Ok(ended) => (ended, 0),
        Err(failure) => (Report::Failed(failure), 1),
    };
    let _ = wire::send(control, &report, &[]);
    sys::exit_now(code)
}

fn run(control: &OwnedFd, filter: &[BpfInstruction], network_setup: NetworkSetup) -> Result<Report, Failure> {
    let mut progress = Progress::new();
    identity::die_with_parent().map_err(|errno| Failure::new(Step::MakeNamespaces, "", errno))?;
    progress.done(Step::MapIdentity, control)?;
    let network = network::start(network_setup)?;
    progress.done(Step::MakeNamespaces, control)?;
    let Start { plan, warm, streams, trees } = Start::receive(control)?;
    progress.hold_at(plan.hold_at);
    // These steps were done before the plan with `hold_at` arrived.
    progress.hold_if_at(Step::MapIdentity, control)?;
    progress.hold_if_at(Step::MakeNamespaces, control)?;
    progress.done(Step::ReadPlan, control)?;
    identity::take(&plan.identity)?;
    limit_inotify();
    progress.done(Step::TakeIdentity, control)?;

    match plan.root {
        RootKind::Own => {
            root::detach_from_host()?;
            progress.done(Step::DetachMounts, control)?;
            let trees = match plan.identity.privilege {
                Privilege::Root => trees,
                Privilege::Rootless => sources::open(&plan.operations, &mut |_| Err(Errno::PERM))?,
            };
            let new_root = with_zero_umask(|| root::build(&plan.operations, trees))?;
            progress.done(Step::BuildRoot, control)?;
            root::enter(&new_root)?;
        }
        RootKind::Base => {
            with_zero_umask(|| root::extend(&plan.operations, trees))?;
            progress.done(Step::BuildRoot, control)?;
        }
    }
    progress.done(Step::EnterRoot, control)?;

    rustix::system::sethostname(plan.hostname.as_bytes())
        .map_err(|errno| Failure::new(Step::SetHostname, "", errno))?;
    progress.done(Step::SetHostname, control)?;
    let streams = match (streams, plan.terminal) {
        (Some(streams), _) => Streams::Pipes(streams),
        (None, size) => Streams::Terminal(open_terminal(size.unwrap_or_default(), control)?),
    };
    progress.done(Step::OpenTerminal, control)?;

    let Limits { tasks_files, counters, socket_counter, mut protections } = Limits::receive(control)?;
    // Boxes run as SCHED_OTHER. A real-time process could not join a cgroup with a CPU limit.
    sys::reset_scheduling().map_err(|errno| Failure::new(Step::JoinCgroups, "(ordinary scheduling)", errno))?;
    cgroups::join(&tasks_files)?;
    drop(tasks_files);
    let meter = MemoryMeter::new(&plan.watchdog, &protections, socket_counter);
    protections.push(match sys::unshare(UnshareFlags::NEWCGROUP) {
        Ok(()) => Protection::enforced(ProtectionName::CgroupNamespace),
        Err(errno) => Protection::not_available(ProtectionName::CgroupNamespace, errno.to_string()),
    });
    progress.done(Step::JoinCgroups, control)?;

    let (open_files, other): (Vec<ResourceLimit>, Vec<ResourceLimit>) =
        plan.resource_limits.iter().partition(|limit| limit.resource == Resource::OpenFiles);
    restrict::resources(&other)?;
    if let Some(partial) = restrict::missing_core_limit(&protections) {
        protections.push(partial);
    }
    progress.done(Step::LimitResources, control)?;
    rustix::thread::set_no_new_privs(true).map_err(|errno| Failure::new(Step::DropPrivileges, "", errno))?;
    if let Some(warm) = warm {
        restrict::resources(&open_files)?;
        let state = InitState { plan, streams, protections, counters, meter, network };
        return warm::run(state, warm, control, filter);
    }
    protections.push(restrict::files(&plan.access)?);
    restrict::require(&plan.required, &protections)?;
    progress.done(Step::RestrictFiles, control)?;
    network.enter()?;
    // Before the seccomp filter, and before the command runs.
    if let Some(port) = plan.proxy_port {
        network::open_proxy_socket(port, control)?;
    }
    progress.done(Step::EnterNetwork, control)?;
    identity::drop_privileges()?;
    progress.done(Step::DropPrivileges, control)?;
    let handle = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())
        .map_err(|errno| Failure::new(Step::StartCommand, "(a handle to PID 1)", errno))?;
    sys::set_signal_mask(true);
    let signals = sys::signal_descriptor().map_err(|errno| Failure::new(Step::StartCommand, "", errno))?;
    if plan.unix_sockets == UnixSockets::Refused {
        let more = seccomp::without_unix_sockets();
        sys::install_filter(&more).map_err(|errno| Failure::new(Step::FilterCalls, "(no Unix sockets)", errno))?;
    }
    sys::install_filter(filter).map_err(|errno| Failure::new(Step::FilterCalls, "", errno))?;
    progress.done(Step::FilterCalls, control)?;
    identity::verify(&plan.identity)?;
    progress.done(Step::VerifyPrivileges, control)?;

    add_unreported(&mut protections);
    let started = Report::Started { protections, steps: progress.into_times() };
    wire::send(control, &started, &[handle.as_fd()])
        .map_err(|errno| Failure::new(Step::StartCommand, "(reporting)", errno))?;
    drop(handle);
    // After the last descriptor was sent: the kernel refuses to send one while the user has more
    // unreceived descriptors than the sender's RLIMIT_NOFILE. A rootless box counts as the same
    // user as all other boxes, so with the lower limit in force one box could keep all others from
    // starting.
    restrict::resources(&open_files)?;
    let command = sys::start_vfork(&mut || command::execute(&plan.command, &streams, control.as_fd()))
        .map_err(|errno| Failure::new(Step::StartCommand, "", errno))?;
    drop(streams);
    Ok(wait_and_report(StartedCommand { command, meter, counters, cpu_before: 0 }, &signals, control))
}

/// State of PID 1 of a warm box, before its command and the command's files are known.
pub(crate) struct InitState {
    pub(crate) plan: Plan,
    pub(crate) streams: Streams,
    pub(crate) protections: Vec<Protection>,
    pub(crate) counters: Vec<OwnedFd>,
    pub(crate) meter: MemoryMeter,
    pub(crate) network: Network,
}

/// A started command.
pub(crate) struct StartedCommand {
    pub(crate) command: Pid,
    pub(crate) meter: MemoryMeter,
    pub(crate) counters: Vec<OwnedFd>,
    /// CPU time that the interpreter used before it got the command.
    pub(crate) cpu_before: u64,
}

/// Waits for the end of the command, kills all other processes and returns the final report.
pub(crate) fn wait_and_report(running: StartedCommand, signals: &OwnedFd, control: &OwnedFd) -> Report {
    let StartedCommand { command, mut meter, counters, cpu_before } = running;
    let ending = supervise(signals, control, command, &mut meter);
    let usage = sys::children_usage();
    let cgroup_usage = CgroupUsage::read(&counters);
    Report::Ended {
        ending,
        cpu_microseconds: usage.cpu_microseconds.saturating_sub(cpu_before),
        peak_memory_bytes: cgroup_usage.peak_memory_bytes.unwrap_or(usage.largest_resident_bytes),
        oom_kills: cgroup_usage.oom_kills,
    }
}

/// Runs `make` with umask 0, so that files get exactly the plan's modes.
pub(crate) fn with_zero_umask<T>(make: impl FnOnce() -> T) -> T {
    rustix::process::umask(rustix::fs::Mode::empty());
    let made = make();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    made
}

/// The kernel also charges inotify instances and watches to the user who created the namespace.
/// Limits of the new user namespace bound the box's share. Best effort.
fn limit_inotify() {
    let _ = sources::write_file("/proc/sys/user/max_inotify_instances", "32");
    let _ = sources::write_file("/proc/sys/user/max_inotify_watches", "65536");
}

/// Opens the box's terminal and sends the master to the executor.
fn open_terminal(size: WindowSize, control: &OwnedFd) -> Result<OwnedFd, Failure> {
    let open = || -> rustix::io::Result<OwnedFd> {
        let (outer, inner) = terminal::open(size)?;
        wire::send(control, &Report::Terminal, &[outer.as_fd()])?;
        Ok(inner)
    };
    open().map_err(|errno| Failure::new(Step::OpenTerminal, "", errno))
}

/// Adds the protections that no step has reported. A step that failed would have refused the box.
pub(crate) fn add_unreported(protections: &mut Vec<Protection>) {
    use ProtectionName::*;
    for name in [
        UserNamespace,
        MountNamespace,
        PidNamespace,
        NetworkNamespace,
        IpcNamespace,
        UtsNamespace,
        NoCapabilities,
        NoNewPrivileges,
        Seccomp,
        ResourceLimits,
    ] {
        // Reported as partial earlier.
        if !protections.iter().any(|known| known.name == name) {
            protections.push(Protection::enforced(name));
        }
    }
    let groups = rustix::process::getgroups().map_or(0, |groups| groups.len());
    protections.push(match groups {
        0 => Protection::enforced(NoExtraGroups),
        groups => Protection::not_available(
            NoExtraGroups,
            format!("without root the server cannot drop its {groups} supplementary groups"),
        ),
    });
    protections.sort_by_key(|protection| protection.name);
}

/// Reaps until the command has ended or the box is over its memory limit, then kills and reaps all
/// other processes.
fn supervise(signals: &OwnedFd, control: &OwnedFd, command: Pid, meter: &mut MemoryMeter) -> Ending {
    let ending = loop {
        let timeout = match reap_some(command) {
            Reaped::Command(ending) => break ending,
            Reaped::Some => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Reaped::All => Some(meter.interval()),
        };
        let mut events = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut events, timeout.as_ref());
        if !events[1].revents().is_empty()
            && let (ControlMessage::Signal(number), _) = start::receive(control)
        {
            let _ = sys::signal_all(number);
        }
        // Signals only wake the loop: their number and sender can be forged by the box.
        for _ in 0..MAX_PER_ROUND {
            if sys::read_signal(signals.as_fd()).is_err() {
                break;
            }
        }
        if meter.is_over_now() {
            break Ending::OverMemory;
        }
    };
    let _ = sys::signal_all(libc::SIGKILL);
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    ending
}

enum Reaped {
    Command(Ending),
    /// More may have ended.
    Some,
    All,
}

/// Reaps up to [`MAX_PER_ROUND`] processes.
fn reap_some(command: Pid) -> Reaped {
    for _ in 0..MAX_PER_ROUND {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => return Reaped::Command(ending_of(status)),
            Ok(Some(_)) => {}
            _ => return Reaped::All,
        }
    }
    Reaped::Some
}

pub(crate) fn ending_of(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => Ending::Signalled(signal),
        (code, None) => Ending::Exited(code.unwrap_or(0)),
    }
}
