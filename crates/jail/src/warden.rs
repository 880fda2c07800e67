//! The warden: the process that stays outside a box, makes it, waits for it, and cleans up.
//!
//! It bears init into new namespaces at once, while the executor is still writing the plan; only on cgroup
//! version 2, where init is born into its group, does it wait for the plan first. Then it hands everything over and
//! takes orders from one socket. When that socket closes, whoever asked for the box is gone: the box is killed, its
//! cgroups are removed, and the warden ends too. It never reads anything that the command wrote.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions, WaitStatus};

use crate::cgroups::Groups;
use crate::handover::Handover;
use crate::identity;
use crate::init;
use crate::plan::{Plan, Privilege};
use crate::progress::Progress;
use crate::report::{Closing, Failure, Order, Protection, ProtectionName, ProtectionState, Report, Step};
use crate::sources;
use crate::sys::{self, BpfInstruction, Cloned, Fork};
use crate::wire;

/// When init is born.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Birth {
    /// At once; it writes itself into its cgroups later.
    Early,
    /// When the plan has come, directly into its cgroup.
    IntoCgroup,
}

impl Birth {
    /// The word with which the executor starts a warden for one box alone.
    pub fn word(self) -> &'static str {
        match self {
            Birth::Early => "early",
            Birth::IntoCgroup => "into-cgroup",
        }
    }

    pub(crate) fn from_word(word: &std::ffi::OsStr) -> Option<Self> {
        [Birth::Early, Birth::IntoCgroup].into_iter().find(|birth| word == birth.word())
    }
}

/// The message that brings the plan: its descriptors are the packed plan and, unless the box has a terminal, the
/// command's standard input, output and error.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Start {
    Plan,
}

const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// What must be undone whatever happens.
#[derive(Default)]
struct Household {
    init: Option<Init>,
    groups: Option<Groups>,
}

struct Init {
    pid: Pid,
    pidfd: OwnedFd,
    channel: OwnedFd,
}

/// From birth to the end of the box; returns the exit code.
pub(crate) fn main(control: &OwnedFd, birth: Birth, filter: &[BpfInstruction]) -> u8 {
    let mut household = Household::default();
    let result = supervise(control, birth, filter, &mut household);
    let closing = household.close();
    let report = match result {
        Ok(()) => Report::Closed(closing),
        Err(failure) => Report::Failed(failure),
    };
    // The answer first; taking the cgroups down can wait until nobody waits for it.
    let _ = wire::send(control, &report, &[]);
    household.remove_groups();
    0
}

fn supervise(
    control: &OwnedFd,
    birth: Birth,
    filter: &[BpfInstruction],
    household: &mut Household,
) -> Result<(), Failure> {
    let mut progress = Progress::begin();
    if birth == Birth::Early {
        household.init = Some(bear(control, None, filter, &mut progress)?);
    }
    let Some((plan, packed, streams)) = read_plan(control)? else { return Ok(()) };
    progress.hold_at(plan.hold_at);
    if birth == Birth::Early {
        // Done before there was a plan to say that the box is to be held there.
        progress.hold_if_asked(Step::MakeNamespaces, control)?;
    }
    progress.done(Step::ReadPlan, control)?;
    let mut protections = plan.protections.clone();
    if birth == Birth::IntoCgroup {
        household.make_groups(&plan, &mut protections)?;
        let birthplace = household.groups.as_ref().and_then(Groups::birthplace);
        let init = bear(control, birthplace, filter, &mut progress)?;
        household.init = Some(init);
    }
    let Some(init) = &household.init else { return Ok(()) };
    let hand_over = |channel: &OwnedFd, message: &Handover, descriptors: &[OwnedFd]| {
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        wire::send(channel, message, &descriptors)
            .map_err(|errno| Failure::new(Step::MakeNamespaces, "(talking to PID 1)", errno))
    };

    let mut belongings = vec![packed];
    belongings.extend(streams);
    hand_over(&init.channel, &Handover::Plan, &belongings)?;
    drop(belongings);
    identity::map(init.pid, &plan.identity)?;
    progress.done(Step::MapIdentity, control)?;
    let trees = match plan.identity.privilege {
        Privilege::Root => sources::open(&plan.operations, &plan.identity)?,
        Privilege::Rootless => Vec::new(),
    };
    progress.done(Step::OpenSources, control)?;
    hand_over(&init.channel, &Handover::Mapped, &trees)?;
    drop(trees);

    if birth == Birth::Early {
        household.make_groups(&plan, &mut protections)?;
    }
    require(&plan, &protections)?;
    if birth == Birth::Early
        && let (Some(groups), Some(init)) = (&household.groups, &household.init)
    {
        groups.adopt(init.pid)?;
    }
    let (doors, counters) = match &household.groups {
        Some(groups) => (groups.doors()?, groups.counters()),
        None => (Vec::new(), Vec::new()),
    };
    progress.done(Step::MakeCgroups, control)?;
    let Some(init) = &household.init else { return Ok(()) };
    let message = Handover::Limits { doors: doors.len(), protections, steps: progress.into_times() };
    let mut descriptors = doors;
    descriptors.extend(counters);
    hand_over(&init.channel, &message, &descriptors)?;
    drop(descriptors);
    watch(control, init);
    Ok(())
}

/// Makes PID 1 of new namespaces. It waits for what is handed over.
fn bear(
    control: &OwnedFd,
    birthplace: Option<BorrowedFd<'_>>,
    filter: &[BpfInstruction],
    progress: &mut Progress,
) -> Result<Init, Failure> {
    let fail = |errno| Failure::new(Step::MakeNamespaces, "", errno);
    identity::leave_groups().map_err(fail)?;
    let (channel, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(fail)?;
    let warden = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    match sys::clone_into_namespaces(NAMESPACES, birthplace).map_err(fail)? {
        Fork::Child => {
            drop(channel);
            init::main(control, &theirs, warden, filter, progress)
        }
        Fork::Parent(Cloned { pid, pidfd }) => {
            progress.done(Step::MakeNamespaces, control)?;
            Ok(Init { pid, pidfd, channel })
        }
    }
}

type Arrival = (Plan, OwnedFd, Vec<OwnedFd>);

/// The plan, its file, and the command's streams; `None` when whoever asked for the box has gone away.
fn read_plan(control: &OwnedFd) -> Result<Option<Arrival>, Failure> {
    let fail = |errno| Failure::new(Step::ReadPlan, "", errno);
    let Some((Start::Plan, mut descriptors)) = wire::receive(control).map_err(fail)? else { return Ok(None) };
    if descriptors.is_empty() {
        return Err(Failure::plain(Step::ReadPlan, "(no plan came with the message)"));
    }
    let packed = descriptors.remove(0);
    let plan = wire::unpack(&packed).map_err(fail)?;
    let wanted = if plan.terminal.is_some() { 0 } else { 3 };
    if descriptors.len() == wanted {
        Ok(Some((plan, packed, descriptors)))
    } else {
        Err(Failure::plain(Step::ReadPlan, "(the command's streams did not come with it)"))
    }
}

impl Household {
    fn make_groups(&mut self, plan: &Plan, protections: &mut Vec<Protection>) -> Result<(), Failure> {
        if let Some(cgroups) = &plan.cgroups {
            let groups = self.groups.insert(Groups::new(cgroups));
            groups.make(cgroups, protections)?;
        }
        Ok(())
    }

    /// Ends PID 1, and with it every process of the box, and reads what is known only now.
    fn close(&mut self) -> Closing {
        let mut closing = Closing::default();
        if let Some(init) = self.init.take() {
            let _ = sys::signal_process(&init.pidfd, libc::SIGKILL);
            closing.init_signal = reap(init.pid).and_then(WaitStatus::terminating_signal);
        }
        // A PID 1 that ended by itself has counted already, and said so.
        if closing.init_signal.is_some()
            && let Some(groups) = &self.groups
        {
            groups.count(&mut closing);
        }
        closing
    }

    fn remove_groups(&mut self) {
        if let Some(groups) = &mut self.groups {
            groups.remove();
        }
    }
}

/// Passes orders on until PID 1 ends or nobody is left to order.
fn watch(control: &OwnedFd, init: &Init) {
    loop {
        let mut events = [
            PollFd::from_borrowed_fd(init.pidfd.as_fd(), PollFlags::IN),
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
                Ok(Some((order @ Order::Signal(_), _))) => {
                    let _ = wire::send(&init.channel, &order, &[]);
                }
                Ok(Some((Order::Kill, _)) | None) | Err(_) => return,
            }
        }
    }
}

fn reap(pid: Pid) -> Option<WaitStatus> {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Some(status),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return None,
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
