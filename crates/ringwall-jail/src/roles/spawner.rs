//! The jail's entry: the spawner, a small process that is the parent of every box's PID 1.
//!
//! Starting a program costs most of a millisecond (in a virtual machine the C library's first look at the
//! processor alone takes half of one); copying this process costs a tenth of that. It bears PID 1 (`birth`) and
//! sees to it that no cgroup stays. It never sees a plan and keeps no descriptor of a box: whatever a box needs goes
//! from the executor to its PID 1 directly. When its own socket closes it waits for the last box, and ends.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::io::{Errno, Result};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getrlimit, setrlimit};
use rustix::thread::ThreadNameSpaceType;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use crate::protocol::plan::{Identity, Operation, Owner};
use crate::protocol::report::{Failure, Report, Step};
use crate::setup::network::Haste;
use crate::setup::networks::Networks;
use crate::setup::{cgroups, cgroups::Group};
use crate::sys::{self, BpfInstruction, Fork};
use crate::{
    protocol::wire,
    roles::{birth, gvisor_init},
    setup::{identity, mounts, root, seccomp, sources},
};

/// What the executor asks for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// PID 1 of a new box. With it come its end of the box's socket and, where it is to be born into a cgroup
    /// (version 2), that directory.
    Box { number: u64, identity: Identity, network: NetworkSource },
    /// Stand in this skeleton from now on: PID 1 of every box is born in a copy of it. With it come a socket for the
    /// [`Answer`], the packed operations, and their trees.
    Skeleton,
    /// The directories in which this executor makes cgroups, with what their names begin, and when they go.
    Parents { prefix: CString, removal: Removal },
    /// A user namespace for a mount that shows the owner's files as the host user's. With it comes a socket for the
    /// [`Answer`].
    Mapping { owner: Owner, host: Owner },
    /// Be no spawner but a warden, with this socket. With it come its packed room and the room's trees.
    Warden,
}

/// Where a box's network namespace comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkSource {
    /// Made for it, and gone with it.
    New,
    /// One that boxes of its user have after one another. Where that cannot be done it is a new one.
    OfItsUser,
}

/// When a cgroup goes, if its executor did not remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// With the box whose number ends its name.
    WithItsBox,
    /// With the executor, which gives it to one box after another.
    WithTheExecutor,
}

/// To [`Request::Mapping`] the namespace comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// The kernel's error number.
    Refused(i32),
}

const BAD_INPUT: u8 = 2;
/// Processes and threads that boxes leave to the server: this process, a thread per processor, the record's threads and
/// those for blocking calls.
const SERVER_PROCESSES: u64 = 256;
/// How often the removal of a group is tried: the kernel lets go of the last task a moment after it was reaped.
const REMOVALS: u32 = 200;
/// How long the executor has to read the counters of a box whose PID 1 was killed, and could not say them any more. It
/// removes the groups itself then.
const READING: Duration = Duration::from_secs(1);
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
    match birth::stand_on_null(&[0]) {
        Ok(()) => std::mem::forget(inherited),
        Err(_) => return ExitCode::FAILURE,
    }
    birth::settle();
    reserve_processes();
    serve(&requests)
}

/// Keeps processes free for the server, which has the same user id as its rootless boxes. Processes in a user
/// namespace also count for the user who made it, against the RLIMIT_NPROC that this user had at that moment: with a
/// lower limit here, forks in boxes fail while the server can still start threads.
fn reserve_processes() {
    let Rlimit { current: Some(current), maximum } = getrlimit(Resource::Nproc) else { return };
    let reserved = SERVER_PROCESSES.min(current / 4);
    let _ = setrlimit(Resource::Nproc, Rlimit { current: Some(current - reserved), maximum });
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
        prefix: CString::default(),
        removal: Removal::WithItsBox,
        networks: Networks::default(),
        living: BTreeMap::new(),
        leaving: Vec::new(),
    };
    loop {
        if spawner.wait(&signals, Some(requests)) == Asked::Nothing {
            continue;
        }
        match wire::receive(requests) {
            Ok(Some((Request::Warden, descriptors))) => gvisor_init::become_warden(requests, descriptors),
            Ok(Some((request, descriptors))) => spawner.answer(request, descriptors),
            Ok(None) => break,
            Err(errno) => return complain(errno),
        }
    }
    // A box that was paused when its executor died has to hear of it.
    if !spawner.prefix.is_empty() {
        cgroups::thaw(&spawner.parents, &spawner.prefix);
    }
    while !spawner.living.is_empty() {
        spawner.wait(&signals, None);
    }
    spawner.leave_all_groups();
    while !spawner.leaving.is_empty() {
        spawner.remove_groups();
        let _ = rustix::thread::nanosleep(&MILLISECOND);
    }
    ExitCode::SUCCESS
}

/// Whether there is a request to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Something,
    Nothing,
}

struct Spawner {
    filter: Vec<BpfInstruction>,
    parents: Vec<OwnedFd>,
    prefix: CString,
    removal: Removal,
    networks: Networks,
    /// The boxes, by the process ids of their PID 1.
    living: BTreeMap<i32, Living>,
    /// Groups whose box has ended.
    leaving: Vec<Leaving>,
}

struct Leaving {
    group: Group,
    /// How often its removal was tried.
    tries: u32,
    /// Not to be tried before.
    from: Option<Instant>,
}

struct Living {
    number: u64,
    /// The network namespace that is to be taken back, and for whom it is.
    network: Option<(u32, OwnedFd)>,
}

impl Spawner {
    /// Waits until a box has ended or something is asked for, and takes leave of the boxes that have.
    fn wait(&mut self, signals: &OwnedFd, requests: Option<&OwnedFd>) -> Asked {
        let mut events = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        events.extend(requests.map(|requests| PollFd::from_borrowed_fd(requests.as_fd(), PollFlags::IN)));
        let timeout = (!self.leaving.is_empty()).then_some(&MILLISECOND);
        let _ = rustix::event::poll(&mut events, timeout);
        if !events[0].revents().is_empty() {
            while sys::read_signal(signals.as_fd()).is_ok() {}
            self.bury();
        }
        self.remove_groups();
        match events.get(1) {
            Some(requests) if !requests.revents().is_empty() => Asked::Something,
            _ => Asked::Nothing,
        }
    }

    fn answer(&mut self, request: Request, mut descriptors: Vec<OwnedFd>) {
        match request {
            Request::Box { number, identity, network } => {
                // A request without its socket: there is nobody to answer.
                let [control, birthplace @ ..] = descriptors.as_slice() else { return };
                let birthplace = birthplace.first().map(AsFd::as_fd);
                let network = match network {
                    NetworkSource::New => None,
                    NetworkSource::OfItsUser => self.networks.enter(identity.host_uid).ok(),
                };
                let haste = if network.is_some() { Haste::Done } else { Haste::Beside };
                let filter = || Some(self.filter.clone());
                match birth::bear(&identity, control, birthplace, haste, filter) {
                    Ok(pid) => {
                        let network = network.map(|network| (identity.host_uid, network));
                        self.living.insert(pid.as_raw_nonzero().get(), Living { number, network });
                    }
                    Err(failure) => {
                        let _ = wire::send(control, &Report::Failed(failure), &[]);
                    }
                }
            }
            Request::Parents { prefix, removal } => {
                (self.parents, self.prefix, self.removal) = (descriptors, prefix, removal);
            }
            Request::Skeleton if descriptors.len() >= 2 => {
                let trees = descriptors.split_off(2);
                let answer = match stand_in_skeleton(&descriptors[1], trees) {
                    Ok(()) => Answer::Done,
                    Err(errno) => Answer::Refused(errno.raw_os_error()),
                };
                let _ = wire::send(&descriptors[0], &answer, &[]);
            }
            Request::Skeleton | Request::Warden => {}
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
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(Living { number, network }) = self.living.remove(&pid.as_raw_nonzero().get()) else { continue };
            if let Some((user, namespace)) = network {
                self.networks.take_back(user, namespace);
            }
            if self.removal == Removal::WithItsBox {
                let name = [self.prefix.as_bytes(), number.to_string().as_bytes()].concat();
                let name = CString::new(name).unwrap_or_default();
                let from = status.signaled().then(|| Instant::now() + READING);
                let groups = (0..self.parents.len()).map(|parent| Group { parent, name: name.clone() });
                self.leaving.extend(groups.map(|group| Leaving { group, tries: 0, from }));
            }
        }
    }

    /// Removes what can be removed now; what will not go at last is swept by the next executor.
    fn remove_groups(&mut self) {
        self.leaving.retain_mut(|Leaving { group, tries, from }| {
            if from.is_some_and(|from| Instant::now() < from) {
                return true;
            }
            *tries += 1;
            *tries <= REMOVALS && cgroups::remove(&self.parents, group) == Err(Errno::BUSY)
        });
    }

    /// Whoever made groups for a box that was never born, or kept them for the next, is gone.
    fn leave_all_groups(&mut self) {
        // Nobody is left who could read them.
        self.leaving.clear();
        // Without a prefix there are no groups, and everybody's would begin with it.
        if !self.prefix.is_empty() {
            let groups = cgroups::find(&self.parents, &self.prefix);
            self.leaving.extend(groups.into_iter().map(|group| Leaving { group, tries: 0, from: None }));
        }
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
