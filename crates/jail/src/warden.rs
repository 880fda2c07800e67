//! The warden: the process that stays outside a box, makes it, waits for it, and cleans up.
//!
//! It gets its plan at birth and its orders from one socket. When that socket closes, whoever asked for the box is
//! gone: the box is killed, its cgroups are removed, and the warden ends too. It never reads anything that the
//! command wrote, and as root it keeps the rights that removing cgroups needs and nothing that runs in the box.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, WaitStatus};

use crate::cgroups::Groups;
use crate::command::Streams;
use crate::identity;
use crate::init::{self, Cell};
use crate::plan::{Plan, Privilege};
use crate::progress::Progress;
use crate::report::{Closing, Failure, Order, Protection, ProtectionName, ProtectionState, Report, Step};
use crate::sources;
use crate::sys::{self, Cloned, Fork};
use crate::wire;

const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// From the descriptors that came with the request to the end of the box; returns the exit code.
pub(crate) fn main(descriptors: Vec<OwnedFd>) -> i32 {
    let mut progress = Progress::begin();
    let mut descriptors = descriptors.into_iter();
    let Some(control) = descriptors.next() else { return 1 };
    match run(&control, descriptors, &mut progress) {
        Ok(()) => 0,
        Err(failure) => {
            let _ = wire::send(&control, &Report::Failed(failure), &[]);
            1
        }
    }
}

fn run(control: &OwnedFd, descriptors: impl Iterator<Item = OwnedFd>, progress: &mut Progress) -> Result<(), Failure> {
    let (plan, streams) = read_plan(descriptors)?;
    progress.hold_at(plan.hold_at);
    progress.done(Step::ReadPlan, control);

    let mut protections = plan.protections.clone();
    let mut groups = None;
    if let Some(cgroups) = &plan.cgroups {
        groups = Some(Groups::make(cgroups, &mut protections)?);
    }
    let result = supervise(control, progress, &plan, streams, groups.as_ref(), protections);
    let mut closing = Closing::default();
    if let Some(groups) = &mut groups {
        groups.close(&mut closing);
    }
    closing.init_signal = result?.terminating_signal();
    let _ = wire::send(control, &Report::Closed(closing), &[]);
    Ok(())
}

fn read_plan(mut descriptors: impl Iterator<Item = OwnedFd>) -> Result<(Plan, Option<[OwnedFd; 3]>), Failure> {
    let packed = descriptors.next().ok_or_else(|| Failure::plain(Step::ReadPlan, "(no plan came with the request)"))?;
    let plan = wire::unpack(packed).map_err(|errno| Failure::new(Step::ReadPlan, "", errno))?;
    match <[OwnedFd; 3]>::try_from(descriptors.collect::<Vec<_>>()) {
        Ok(streams) => Ok((plan, Some(streams))),
        Err(_) if plan.terminal.is_some() => Ok((plan, None)),
        Err(_) => Err(Failure::plain(Step::ReadPlan, "(the command's streams did not come with it)")),
    }
}

/// Makes PID 1 and stays with it until it is gone.
fn supervise(
    control: &OwnedFd,
    progress: &mut Progress,
    plan: &Plan,
    streams: Option<[OwnedFd; 3]>,
    groups: Option<&Groups<'_>>,
    protections: Vec<Protection>,
) -> Result<WaitStatus, Failure> {
    require(plan, &protections)?;
    let doors = groups.map(Groups::doors).transpose()?.unwrap_or_default();
    progress.done(Step::MakeCgroups, control);

    let sources = match plan.identity.privilege {
        Privilege::Root => Some(sources::open(&plan.operations, &plan.identity)?),
        Privilege::Rootless => None,
    };
    identity::leave_groups(plan.identity.privilege)
        .map_err(|errno| Failure::new(Step::MapIdentity, "(leaving root's groups)", errno))?;
    progress.done(Step::OpenSources, control);

    let fail = |errno| Failure::new(Step::MakeNamespaces, "", errno);
    let (go, ready) = pipe_with(PipeFlags::CLOEXEC).map_err(fail)?;
    let warden = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    let birthplace = groups.and_then(Groups::birthplace);
    let Cloned { pid, pidfd } = match sys::clone_into_namespaces(NAMESPACES, birthplace).map_err(fail)? {
        Fork::Child => {
            drop(ready);
            let streams = streams.map(Streams::Pipes);
            let cell = Cell { plan, control, warden, go, doors, sources, streams, protections };
            init::main(cell, std::mem::replace(progress, Progress::begin()));
        }
        Fork::Parent(child) => child,
    };
    // The command's streams, the mounts and the cgroup's doors belong to PID 1 alone.
    drop((streams, sources, doors, go));
    let mapped = identity::map(pid, &plan.identity);
    if mapped.is_ok() {
        let _ = rustix::io::write(&ready, b"g");
        watch(control, &pidfd);
    }
    let _ = sys::signal_process(&pidfd, libc::SIGKILL);
    let status = reap(pid)?;
    mapped.map(|()| status)
}

/// Passes orders on until PID 1 ends or nobody is left to order.
fn watch(control: &OwnedFd, pidfd: &OwnedFd) {
    loop {
        let mut events = [
            PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut events, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if !events[0].revents().is_empty() {
            return;
        }
        if !events[1].revents().is_empty() {
            match wire::receive::<Order>(control) {
                Ok(Some((Order::Signal(number), _))) => {
                    let _ = sys::signal_process(pidfd, number);
                }
                Ok(Some((Order::Kill, _)) | None) | Err(_) => return,
            }
        }
    }
}

fn reap(pid: rustix::process::Pid) -> Result<WaitStatus, Failure> {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::new(Step::MakeNamespaces, "(waiting for PID 1)", errno)),
        }
    }
}

/// Refuses the box when a protection that the plan insists on is not there.
pub(crate) fn require(plan: &Plan, protections: &[Protection]) -> Result<(), Failure> {
    for required in &plan.required {
        // An older Landlock still guards every file; a limit that is only partly there does not limit.
        let lacking = |protection: &&Protection| {
            protection.name == *required
                && match protection.state {
                    ProtectionState::Enforced => false,
                    ProtectionState::Partial => protection.name != ProtectionName::Landlock,
                    ProtectionState::NotAvailable => true,
                }
        };
        if let Some(protection) = protections.iter().find(lacking) {
            let why = protection.why.as_deref().unwrap_or_default();
            let step = match required {
                ProtectionName::Landlock => Step::RestrictFiles,
                _ => Step::MakeCgroups,
            };
            return Err(Failure::plain(step, format!("(required by the policy): {why}")));
        }
    }
    Ok(())
}
