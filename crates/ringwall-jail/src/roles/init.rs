//! PID 1 of a box: makes everything around itself, starts the command, reaps, and ends with it.
//!
//! The order of the steps is the security of the box. Mounts before Landlock, which forbids them; the terminal
//! before Landlock, which would refuse it; the network as late as may be, because it takes longest to be ready;
//! capabilities after everything that needs them; the filter last, and then a look at what is really in force. No
//! instruction of the command runs before the last step. When PID 1 ends, for whatever reason, the kernel kills
//! every process of the box.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use rustix::thread::UnshareFlags;
use rustix::time::Timespec;

use crate::progress::Progress;
use crate::protocol::plan::{Plan, Privilege, Resource, ResourceLimit, RootKind, UnixSockets, WindowSize};
use crate::protocol::report::{Ending, Failure, Order, Protection, ProtectionName, Report, Step};
use crate::roles::watchdog::Meter;
use crate::roles::{command, command::Streams};
use crate::roles::{
    start,
    start::{Limits, Start},
};
use crate::setup::cgroups::Counted;
use crate::setup::{
    network,
    network::{Haste, Network},
};
use crate::sys::{self, BpfInstruction};
use crate::{
    protocol::wire,
    roles::warm,
    setup::{cgroups, identity, restrict, root, seccomp, sources, terminal},
};

/// What PID 1 is born into. The network's namespace is made beside the rest (`network`), the cgroup's after joining.
pub(crate) const NAMESPACES: u64 =
    (libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS) as u64;

/// Signals and ended processes that are handled before looking at everything else again.
const AT_ONCE: u32 = 64;

/// Runs as PID 1, in its new namespaces, its ids mapped.
pub(crate) fn main(control: &OwnedFd, filter: &[BpfInstruction], haste: Haste) -> ! {
    let (report, code) = match live(control, filter, haste) {
        Ok(ended) => (ended, 0),
        Err(failure) => (Report::Failed(failure), 1),
    };
    let _ = wire::send(control, &report, &[]);
    sys::exit_now(code)
}

fn live(control: &OwnedFd, filter: &[BpfInstruction], haste: Haste) -> Result<Report, Failure> {
    let mut progress = Progress::begin();
    identity::die_with_parent().map_err(|errno| Failure::new(Step::MakeNamespaces, "", errno))?;
    progress.done(Step::MapIdentity, control)?;
    let network = network::begin(haste)?;
    progress.done(Step::MakeNamespaces, control)?;
    let Start { plan, ahead, streams, trees } = Start::receive(control)?;
    progress.hold_at(plan.hold_at);
    // Done before there was a plan to say that the box is to be held there.
    progress.hold_if_asked(Step::MapIdentity, control)?;
    progress.hold_if_asked(Step::MakeNamespaces, control)?;
    progress.done(Step::ReadPlan, control)?;
    identity::take(&plan.identity)?;
    limit_shared_accounts();
    progress.done(Step::TakeIdentity, control)?;

    match plan.root {
        RootKind::Own => {
            root::detach_from_host()?;
            progress.done(Step::DetachMounts, control)?;
            let trees = match plan.identity.privilege {
                Privilege::Root => trees,
                Privilege::Rootless => sources::open(&plan.operations, &mut |_| Err(Errno::PERM))?,
            };
            let new_root = without_mask(|| root::build(&plan.operations, trees))?;
            progress.done(Step::BuildRoot, control)?;
            root::enter(&new_root)?;
        }
        RootKind::Skeleton => {
            without_mask(|| root::extend(&plan.operations, trees))?;
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

    let Limits { doors, counters, socket_counter, mut protections } = Limits::receive(control)?;
    // A box competes as an ordinary process; real-time ones could not even join a cgroup with a processor limit.
    sys::schedule_ordinarily().map_err(|errno| Failure::new(Step::JoinCgroups, "(ordinary scheduling)", errno))?;
    cgroups::join(&doors)?;
    drop(doors);
    let meter = Meter::new(&plan.watchdog, &protections, socket_counter);
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
    if let Some(ahead) = ahead {
        restrict::resources(&open_files)?;
        let made = Made { plan, streams, protections, counters, meter, network };
        return warm::live(made, ahead, control, filter);
    }
    protections.push(restrict::files(&plan.access)?);
    restrict::require(&plan.required, &protections)?;
    progress.done(Step::RestrictFiles, control)?;
    network.enter()?;
    // While nothing of the command runs, and before the filter.
    if let Some(port) = plan.way_out {
        network::open_way_out(port, control)?;
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

    complete(&mut protections);
    let started = Report::Started { protections, steps: progress.into_times() };
    wire::send(control, &started, &[handle.as_fd()])
        .map_err(|errno| Failure::new(Step::StartCommand, "(reporting)", errno))?;
    drop(handle);
    // After the last descriptor was sent. The kernel refuses to send one while the user's unreceived descriptors
    // exceed the sender's RLIMIT_NOFILE, and a rootless box counts as the same user as all other boxes: with the
    // limit in force one box could keep every other from starting.
    restrict::resources(&open_files)?;
    let command = sys::start_sharing_memory(&mut || command::execute(&plan.command, &streams, control.as_fd()))
        .map_err(|errno| Failure::new(Step::StartCommand, "", errno))?;
    drop(streams);
    Ok(follow(Running { command, meter, counters, spent_before: 0 }, &signals, control))
}

/// What PID 1 has made around itself when nothing but the files of a command and the command itself is missing.
pub(crate) struct Made {
    pub(crate) plan: Plan,
    pub(crate) streams: Streams,
    pub(crate) protections: Vec<Protection>,
    pub(crate) counters: Vec<OwnedFd>,
    pub(crate) meter: Meter,
    pub(crate) network: Network,
}

/// A command that has begun.
pub(crate) struct Running {
    pub(crate) command: Pid,
    pub(crate) meter: Meter,
    pub(crate) counters: Vec<OwnedFd>,
    /// Processor time that is not the command's own: what its interpreter took before.
    pub(crate) spent_before: u64,
}

/// Follows the command to its end, and the box to its last process but this one.
pub(crate) fn follow(running: Running, signals: &OwnedFd, control: &OwnedFd) -> Report {
    let Running { command, mut meter, counters, spent_before } = running;
    let ending = keep(signals, control, command, &mut meter);
    let usage = sys::children_usage();
    let counted = Counted::read(&counters);
    Report::Ended {
        ending,
        cpu_microseconds: usage.cpu_microseconds.saturating_sub(spent_before),
        peak_memory_bytes: counted.peak_memory_bytes.unwrap_or(usage.largest_resident_bytes),
        oom_kills: counted.oom_kills,
    }
}

/// Files and directories get the modes that the plan says.
pub(crate) fn without_mask<T>(make: impl FnOnce() -> T) -> T {
    rustix::process::umask(rustix::fs::Mode::empty());
    let made = make();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    made
}

/// Some of the kernel's counts per user reach up to whoever made the namespace. Within it they can be kept small; a
/// kernel that does not let us leaves them as they are.
fn limit_shared_accounts() {
    let _ = sources::write_file("/proc/sys/user/max_inotify_instances", "32");
    let _ = sources::write_file("/proc/sys/user/max_inotify_watches", "65536");
}

/// A terminal of the box's own; its other end goes to the executor.
fn open_terminal(size: WindowSize, control: &OwnedFd) -> Result<OwnedFd, Failure> {
    let open = || -> rustix::io::Result<OwnedFd> {
        let (outer, inner) = terminal::open(size)?;
        wire::send(control, &Report::Terminal, &[outer.as_fd()])?;
        Ok(inner)
    };
    open().map_err(|errno| Failure::new(Step::OpenTerminal, "", errno))
}

/// Everything that was not reported where it was done. That these hold is why we got here at all.
pub(crate) fn complete(protections: &mut Vec<Protection>) {
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
        // The plan says so where one of them is only partly there.
        if !protections.iter().any(|known| known.name == name) {
            protections.push(Protection::enforced(name));
        }
    }
    let groups = rustix::process::getgroups().map_or(0, |groups| groups.len());
    protections.push(match groups {
        0 => Protection::enforced(NoExtraGroups),
        groups => Protection::not_available(
            NoExtraGroups,
            format!("the kernel does not let an ordinary user leave the {groups} groups that started this box"),
        ),
    });
    protections.sort_by_key(|protection| protection.name);
}

/// Reaps until the command has ended; then ends and reaps all others.
fn keep(signals: &OwnedFd, control: &OwnedFd, command: Pid, meter: &mut Meter) -> Ending {
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
            && let (Order::Signal(number), _) = start::receive(control)
        {
            let _ = sys::signal_everyone(number);
        }
        // Signals only wake us. Which one came, and from whom, a process of the box could forge. A few at a time: one
        // that floods us must not keep us from everything else.
        for _ in 0..AT_ONCE {
            if sys::read_signal(signals.as_fd()).is_err() {
                break;
            }
        }
        if meter.is_over_now() {
            break Ending::OverMemory;
        }
    };
    let _ = sys::signal_everyone(libc::SIGKILL);
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    ending
}

enum Reaped {
    Command(Ending),
    /// There may be more.
    Some,
    All,
}

/// Reaps what has ended, up to a number.
fn reap_some(command: Pid) -> Reaped {
    for _ in 0..AT_ONCE {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => return Reaped::Command(how(status)),
            Ok(Some(_)) => {}
            _ => return Reaped::All,
        }
    }
    Reaped::Some
}

pub(crate) fn how(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => Ending::Signalled(signal),
        (code, None) => Ending::Exited(code.unwrap_or(0)),
    }
}
