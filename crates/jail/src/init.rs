//! PID 1 of a box: makes everything around itself, starts the command, reaps, and ends with it.
//!
//! The order of the steps is the security of the box. Mounts before Landlock, which forbids them; the terminal
//! before Landlock, which would refuse it; capabilities after everything that needs them; the filter last, and
//! then a look at what is really in force. No instruction of the command runs before the last step. When PID 1
//! ends, for whatever reason, the kernel kills every process of the box.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use rustix::pty::OpenptFlags;
use rustix::time::Timespec;

use crate::cgroups::Counted;
use crate::command::{self, Streams};
use crate::handover::{self, Handover};
use crate::plan::{Plan, Privilege, WindowSize};
use crate::progress::Progress;
use crate::report::{Ending, Failure, Order, Protection, ProtectionName, Report, Step};
use crate::sys::{self, BpfInstruction};
use crate::watchdog::Meter;
use crate::{cgroups, identity, restrict, root, sources, warden, wire};

/// Signals and ended processes that are handled before looking at everything else again.
const AT_ONCE: u32 = 64;

/// Runs as PID 1 from the first instruction in the new namespaces.
pub(crate) fn main(
    control: &OwnedFd,
    channel: &OwnedFd,
    warden: u32,
    filter: &[BpfInstruction],
    progress: &Progress,
) -> ! {
    let (report, code) = match live(control, channel, warden, filter, progress.clone()) {
        Ok(ended) => (ended, 0),
        Err(failure) => (Report::Failed(failure), 1),
    };
    let _ = wire::send(control, &report, &[]);
    sys::exit_now(code)
}

fn live(
    control: &OwnedFd,
    channel: &OwnedFd,
    warden: u32,
    filter: &[BpfInstruction],
    mut progress: Progress,
) -> Result<Report, Failure> {
    let (plan, streams) = receive_plan(channel)?;
    progress.hold_at(plan.hold_at);
    let (Handover::Mapped, trees) = handover::receive(channel) else { return Err(disorder()) };
    identity::take(&plan.identity)?;
    limit_shared_accounts();
    // Had the warden died before the death signal was armed, nobody would ever kill this box.
    if warden_is_gone(channel) {
        sys::exit_now(1);
    }
    progress.done(Step::TakeIdentity, control)?;

    root::detach_from_host()?;
    progress.done(Step::DetachMounts, control)?;
    let trees = match plan.identity.privilege {
        Privilege::Root => trees,
        Privilege::Rootless => sources::open(&plan.operations, &plan.identity)?,
    };
    rustix::process::umask(rustix::fs::Mode::empty());
    let new_root = root::build(&plan.operations, trees)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    progress.done(Step::BuildRoot, control)?;
    root::enter(&new_root)?;
    drop(new_root);
    progress.done(Step::EnterRoot, control)?;

    bring_up_loopback()?;
    progress.done(Step::BringUpLoopback, control)?;
    rustix::system::sethostname(plan.hostname.as_bytes())
        .map_err(|errno| Failure::new(Step::SetHostname, "", errno))?;
    progress.done(Step::SetHostname, control)?;
    let streams = match (streams, plan.terminal) {
        (Some(streams), _) => Streams::Pipes(streams),
        (None, Some(size)) => Streams::Terminal(open_terminal(size, control)?),
        (None, None) => return Err(disorder()),
    };
    progress.done(Step::OpenTerminal, control)?;

    let (Handover::Limits { doors, mut protections, steps }, mut descriptors) = handover::receive(channel) else {
        return Err(disorder());
    };
    // A box competes as an ordinary process; real-time ones could not even join a cgroup with a processor limit.
    sys::schedule_ordinarily().map_err(|errno| Failure::new(Step::JoinCgroups, "(ordinary scheduling)", errno))?;
    if descriptors.len() < doors {
        return Err(disorder());
    }
    let counters = descriptors.split_off(doors);
    cgroups::join(&descriptors)?;
    drop(descriptors);
    let mut meter = Meter::where_needed(&plan.watchdog, &protections);
    protections.push(match sys::unshare_cgroup_namespace() {
        Ok(()) => Protection::enforced(ProtectionName::CgroupNamespace),
        Err(errno) => Protection::not_available(ProtectionName::CgroupNamespace, errno.to_string()),
    });
    progress.done(Step::JoinCgroups, control)?;

    restrict::resources(&plan.resource_limits)?;
    progress.done(Step::LimitResources, control)?;
    rustix::thread::set_no_new_privs(true).map_err(|errno| Failure::new(Step::DropPrivileges, "", errno))?;
    protections.push(restrict::files(&plan.access)?);
    warden::require(&plan, &protections)?;
    progress.done(Step::RestrictFiles, control)?;
    identity::drop_privileges()?;
    progress.done(Step::DropPrivileges, control)?;
    sys::set_signal_mask(true);
    let signals = sys::signal_descriptor().map_err(|errno| Failure::new(Step::StartCommand, "", errno))?;
    sys::install_filter(filter).map_err(|errno| Failure::new(Step::FilterCalls, "", errno))?;
    progress.done(Step::FilterCalls, control)?;
    identity::verify(&plan.identity)?;
    progress.done(Step::VerifyPrivileges, control)?;

    complete(&mut protections);
    let mut steps: Vec<_> = steps.into_iter().chain(progress.into_times()).collect();
    steps.sort_by_key(|step| (step.microseconds, step.step));
    steps.dedup();
    wire::send(control, &Report::Started { warden, protections, steps }, &[])
        .map_err(|errno| Failure::new(Step::StartCommand, "(reporting)", errno))?;
    let command = sys::start_sharing_memory(&mut || command::execute(&plan.command, &streams, control.as_fd()))
        .map_err(|errno| Failure::new(Step::StartCommand, "", errno))?;
    drop(streams);
    let ending = keep(&signals, channel, command, meter.as_mut());
    let usage = sys::children_usage();
    let counted = Counted::read(&counters);
    Ok(Report::Ended {
        ending,
        cpu_microseconds: usage.cpu_microseconds,
        peak_memory_bytes: counted.peak_memory_bytes.unwrap_or(usage.largest_resident_bytes),
        oom_kills: counted.oom_kills,
    })
}

/// Some of the kernel's counts per user reach up to whoever made the namespace. Within it they can be kept small; a
/// kernel that does not let us leaves them as they are.
fn limit_shared_accounts() {
    let _ = sources::write_file("/proc/sys/user/max_inotify_instances", "32");
    let _ = sources::write_file("/proc/sys/user/max_inotify_watches", "65536");
}

fn receive_plan(channel: &OwnedFd) -> Result<(Plan, Option<[OwnedFd; 3]>), Failure> {
    let (Handover::Plan, mut descriptors) = handover::receive(channel) else { return Err(disorder()) };
    if descriptors.is_empty() {
        return Err(disorder());
    }
    let packed = descriptors.remove(0);
    let plan = wire::unpack(packed).map_err(|errno| Failure::new(Step::ReadPlan, "", errno))?;
    Ok((plan, <[OwnedFd; 3]>::try_from(descriptors).ok()))
}

/// The warden and PID 1 are one program, so this is a fault of ours; it ends the box like any other.
fn disorder() -> Failure {
    Failure::plain(Step::ReadPlan, "(PID 1 was handed something else than it expected)")
}

fn warden_is_gone(channel: &OwnedFd) -> bool {
    let mut events = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut events, Some(&now)).is_err() || events[0].revents().contains(PollFlags::HUP)
}

fn bring_up_loopback() -> Result<(), Failure> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None);
    socket
        .and_then(|socket| sys::bring_loopback_up(socket.as_fd()))
        .map_err(|errno| Failure::new(Step::BringUpLoopback, "", errno))
}

/// A terminal of the box's own; its other end goes to the executor.
fn open_terminal(size: WindowSize, control: &OwnedFd) -> Result<OwnedFd, Failure> {
    let open = || -> rustix::io::Result<OwnedFd> {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let outer = rustix::fs::open(c"/dev/ptmx", flags, rustix::fs::Mode::empty())?;
        rustix::pty::unlockpt(&outer)?;
        let window = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&outer, window)?;
        let inner =
            rustix::pty::ioctl_tiocgptpeer(&outer, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        wire::send(control, &Report::Terminal, &[outer.as_fd()])?;
        Ok(inner)
    };
    open().map_err(|errno| Failure::new(Step::OpenTerminal, "", errno))
}

/// Everything that was not reported where it was done. That these hold is why we got here at all.
fn complete(protections: &mut Vec<Protection>) {
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
        protections.push(Protection::enforced(name));
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
fn keep(signals: &OwnedFd, channel: &OwnedFd, command: Pid, mut meter: Option<&mut Meter>) -> Ending {
    let ending = loop {
        let timeout = match reap_some(command) {
            Reaped::Command(ending) => break ending,
            Reaped::Some => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Reaped::All => meter.as_ref().map(|meter| meter.interval()),
        };
        let mut events = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut events, timeout.as_ref());
        if !events[1].revents().is_empty()
            && let (Order::Signal(number), _) = handover::receive(channel)
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
        if meter.as_mut().is_some_and(|meter| meter.is_over_now()) {
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

fn how(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => Ending::Signalled(signal),
        (code, None) => Ending::Exited(code.unwrap_or(0)),
    }
}
