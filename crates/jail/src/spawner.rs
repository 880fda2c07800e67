//! The jail's entry: the spawner, a small process that is the parent of every box's PID 1.
//!
//! Starting a program costs most of a millisecond (in a virtual machine the C library's first look at the
//! processor alone takes half of one); copying this process costs a tenth of that. It bears PID 1 (`birth`) and
//! removes its cgroups when it has ended. It never sees a plan and keeps no
//! descriptor of a box: whatever a box needs goes from the executor to its PID 1 directly. When its own socket
//! closes it waits for the last box, and ends.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::io::{Errno, Result};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, Signal, WaitOptions};
use rustix::thread::ThreadNameSpaceType;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use crate::cgroups::{self, Group};
use crate::network::Haste;
use crate::plan::{Identity, Operation, Owner};
use crate::report::{Failure, Report, Step};
use crate::sys::{self, BpfInstruction, Fork};
use crate::{birth, identity, mounts, root, seccomp, sources, wire};

/// What the executor asks for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// PID 1 of a new box. With it come its end of the box's socket and, where it is to be born into a cgroup
    /// (version 2), that directory.
    Box { number: u64, identity: Identity },
    /// These belong to the box of that number, and go when it has ended.
    Groups { number: u64, groups: Vec<Group> },
    /// Stand in this skeleton from now on: PID 1 of every box is born in a copy of it. With it come a socket for the
    /// [`Answer`], the packed operations, and their trees.
    Skeleton,
    /// The directories in which cgroups are made, in the order in which [`Group::parent`] counts them.
    Parents,
    /// A user namespace for a mount that shows the owner's files as the host user's. With it comes a socket for the
    /// [`Answer`].
    Mapping { owner: Owner, host: Owner },
}

/// To [`Request::Mapping`] the namespace comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// The kernel's error number.
    Refused(i32),
}

const BAD_INPUT: u8 = 2;
/// How often the removal of a group is tried: the kernel lets go of the last task a moment after it was reaped.
const REMOVALS: u32 = 200;
const MILLISECOND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The jail's entry point, for a process that the executor has started.
pub fn main() -> ExitCode {
    sys::close_inherited_descriptors();
    let inherited = sys::take_control_descriptor();
    let Ok(requests) = rustix::io::fcntl_dupfd_cloexec(&inherited, 3) else { return ExitCode::FAILURE };
    if let Err(errno) = rustix::net::sockopt::socket_type(&requests) {
        return complain(errno);
    }
    // Stays occupied, but not by the socket, of which a box must hold no copy.
    match sys::stand_on_null(&[0]) {
        Ok(()) => std::mem::forget(inherited),
        Err(_) => return ExitCode::FAILURE,
    }
    birth::settle();
    serve(&requests)
}

/// Serves until the socket is closed and the last box has ended.
fn serve(requests: &OwnedFd) -> ExitCode {
    let ready = identity::leave_groups().and_then(|()| sys::child_descriptor());
    let signals = match ready {
        Ok(signals) => signals,
        Err(errno) => return complain(errno),
    };
    let mut spawner = Spawner {
        // The same for every box, so it is made before there is one.
        filter: seccomp::program(),
        parents: Vec::new(),
        living: BTreeMap::new(),
        groups: BTreeMap::new(),
        leaving: Vec::new(),
    };
    let mut open = true;
    while open || !spawner.is_done() {
        let mut events = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(requests.as_fd(), if open { PollFlags::IN } else { PollFlags::empty() }),
        ];
        let waiting = if open { &mut events[..] } else { &mut events[..1] };
        let timeout = (!spawner.leaving.is_empty()).then_some(&MILLISECOND);
        let _ = rustix::event::poll(waiting, timeout);
        let (ended, asked) = (!events[0].revents().is_empty(), !events[1].revents().is_empty());
        if ended {
            while sys::read_signal(signals.as_fd()).is_ok() {}
            spawner.bury();
        }
        spawner.remove_groups();
        if open && asked {
            match wire::receive(requests) {
                Ok(Some((request, descriptors))) => spawner.answer(request, descriptors),
                Ok(None) => {
                    open = false;
                    spawner.leave_all_groups();
                    spawner.remove_groups();
                }
                Err(errno) => return complain(errno),
            }
        }
    }
    ExitCode::SUCCESS
}

struct Spawner {
    filter: Vec<BpfInstruction>,
    parents: Vec<OwnedFd>,
    living: BTreeMap<i32, u64>,
    groups: BTreeMap<u64, Vec<Group>>,
    /// Groups whose box has ended, and how often their removal was tried.
    leaving: Vec<(Group, u32)>,
}

impl Spawner {
    fn answer(&mut self, request: Request, mut descriptors: Vec<OwnedFd>) {
        match request {
            Request::Box { number, identity } => {
                // A request without its socket: there is nobody to answer.
                let [control, birthplace @ ..] = descriptors.as_slice() else { return };
                let birthplace = birthplace.first().map(AsFd::as_fd);
                let filter = || Some(self.filter.clone());
                match birth::bear(&identity, control, birthplace, Haste::Beside, filter) {
                    Ok(pid) => {
                        self.living.insert(pid.as_raw_nonzero().get(), number);
                    }
                    Err(failure) => {
                        let _ = wire::send(control, &Report::Failed(failure), &[]);
                    }
                }
            }
            Request::Groups { number, groups } => {
                self.groups.insert(number, groups);
            }
            Request::Parents => self.parents = descriptors,
            Request::Skeleton if descriptors.len() >= 2 => {
                let trees = descriptors.split_off(2);
                let answer = match stand_in_skeleton(&descriptors[1], trees) {
                    Ok(()) => Answer::Done,
                    Err(errno) => Answer::Refused(errno.raw_os_error()),
                };
                let _ = wire::send(&descriptors[0], &answer, &[]);
            }
            Request::Skeleton => {}
            Request::Mapping { owner, host } => {
                let Some(reply) = descriptors.first() else { return };
                let _ = match sources::mapping(owner, host) {
                    Ok(namespace) => wire::send(reply, &Answer::Done, &[namespace.as_fd()]),
                    Err(errno) => wire::send(reply, &Answer::Refused(errno.raw_os_error()), &[]),
                };
            }
        }
    }

    /// Takes leave of every box whose PID 1 has ended.
    fn bury(&mut self) {
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            let number = self.living.remove(&pid.as_raw_nonzero().get());
            let groups = number.and_then(|number| self.groups.remove(&number)).unwrap_or_default();
            self.leaving.extend(groups.into_iter().map(|group| (group, 0)));
        }
    }

    /// Removes what can be removed now; what will not go at last is swept by the next executor.
    fn remove_groups(&mut self) {
        self.leaving.retain_mut(|(group, tries)| {
            *tries += 1;
            *tries <= REMOVALS && cgroups::remove(&self.parents, group) == Err(Errno::BUSY)
        });
    }

    /// Groups of boxes whose PID 1 is not our child: whoever made them is gone, and they go when they are empty.
    fn leave_all_groups(&mut self) {
        let living: BTreeSet<u64> = self.living.values().copied().collect();
        let (kept, left): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.groups).into_iter().partition(|(number, _)| living.contains(number));
        self.groups = kept;
        self.leaving.extend(left.into_values().flatten().map(|group| (group, 0)));
    }

    fn is_done(&self) -> bool {
        self.living.is_empty() && self.leaving.is_empty()
    }
}

/// Moves this process into a mount namespace of its own with the skeleton as its root. The host's mounts are then out
/// of reach, for this process as for every box; what is left of the host is what the skeleton shows. A child builds it,
/// so that this process, of which every box is a copy, stays small.
fn stand_in_skeleton(packed: &OwnedFd, trees: Vec<OwnedFd>) -> Result<()> {
    let (outcome, tell) = pipe_with(PipeFlags::CLOEXEC)?;
    let spawner = rustix::process::getpid();
    let builder = match sys::clone_into_namespaces(libc::CLONE_NEWNS as u64, None)? {
        Fork::Parent(builder) => builder,
        Fork::Child => {
            let errno = build_skeleton(packed, trees).map_or_else(|errno| errno.raw_os_error(), |()| 0);
            let _ = rustix::io::write(&tell, &errno.to_le_bytes());
            sources::hold_namespace(spawner)
        }
    };
    drop(tell);
    let mut word = [0; 4];
    let entered = match rustix::io::read(&outcome, &mut word)? {
        4 if word == [0; 4] => rustix::process::pidfd_open(builder, PidfdFlags::empty()).and_then(|handle| {
            rustix::thread::move_into_thread_name_spaces(handle.as_fd(), ThreadNameSpaceType::MOUNT)
        }),
        4 => Err(Errno::from_raw_os_error(i32::from_le_bytes(word))),
        _ => Err(Errno::CHILD),
    };
    rustix::process::kill_process(builder, Signal::KILL)?;
    rustix::process::waitpid(Some(builder), WaitOptions::empty())?;
    entered
}

fn build_skeleton(packed: &OwnedFd, trees: Vec<OwnedFd>) -> Result<()> {
    let operations: Vec<Operation> = wire::unpack(packed)?;
    let raw = |failure: Failure| Errno::from_raw_os_error(failure.errno);
    mounts::can_clone_detached()?;
    root::detach_from_host().map_err(raw)?;
    rustix::process::umask(Mode::empty());
    let new_root = root::build(&operations, trees).map_err(raw)?;
    root::enter(&new_root).map_err(raw)
}

/// Somebody started this process by hand, or sent it something else than a request.
fn complain(errno: Errno) -> ExitCode {
    let failure = Failure::new(Step::ReadPlan, "", errno);
    let text = format!("ringwall: {failure}\n  hint: ringwall starts this process itself; it is not for use by hand\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    ExitCode::from(BAD_INPUT)
}
