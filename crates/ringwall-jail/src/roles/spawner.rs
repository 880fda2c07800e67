//! The spawner: a small process that clones PID 1 of every box.
//!
//! Starting a program takes almost 1 ms (in a virtual machine half of it is the C library's first
//! CPUID); cloning this process takes a tenth of that. The spawner clones PID 1 (`spawn_init`) and
//! removes cgroups that are left over. It never sees a plan, and of a box's descriptors it keeps
//! only a reusable network namespace: the executor sends the others to PID 1 directly. When its own
//! socket closes, it waits for the last box, removes the remaining cgroups and exits.

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
use crate::setup::network::NetworkSetup;
use crate::setup::networks::NetworkPool;
use crate::setup::{cgroups, cgroups::GroupDirectory};
use crate::sys::{self, BpfInstruction, Fork};
use crate::{
    protocol::wire,
    roles::{gvisor_init, spawn_init},
    setup::{identity, mounts, root, seccomp, sources},
};

/// A request from the executor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Clones PID 1 of a new box. Descriptors: PID 1's end of the control socket and, on cgroup v2,
    /// the cgroup directory to clone it into.
    Box { number: u64, identity: Identity, network: NetworkSource },
    /// Enters a new base rootfs, of which every later box gets a copy. Descriptors: a socket for
    /// the [`Reply`], the packed operations, and their trees.
    BaseRootfs,
    /// Sets the parent directories of this executor's cgroups, the prefix of their names, and when
    /// they are removed. Descriptors: the parent directories.
    Parents { prefix: CString, removal: Removal },
    /// Makes a user namespace for an id-mapped mount that shows the owner's files as the host
    /// user's. Descriptor: a socket for the [`Reply`].
    Mapping { owner: Owner, host: Owner },
    /// Become gVisor's init instead of a spawner, with this socket. Descriptors: the packed
    /// operations of its root, and their trees.
    GvisorInit,
}

/// The network namespace of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkSource {
    /// A new one, not reused.
    New,
    /// One that an earlier box with the same host uid used, or a new one that is kept for later.
    /// Not possible without root: then a new one.
    Reused,
}

/// When the spawner removes a cgroup that the executor did not remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// When the box ends whose number is the end of the name.
    WithBox,
    /// When the executor has ended, which reuses cgroups for later boxes.
    WithExecutor,
}

/// The answer to [`Request::Mapping`] carries the namespace.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// Errno of the failed call.
    Failed(i32),
}

const BAD_INPUT: u8 = 2;
/// Processes and threads that boxes leave to the server: this process, one thread per CPU, the
/// record's threads and those for blocking calls.
const SERVER_PROCESSES: u64 = 256;
/// Attempts to remove a cgroup, which stays busy for a moment after its last process was reaped.
const MAX_ATTEMPTS: u32 = 200;
/// If PID 1 was killed, the executor itself reads the counters and removes the cgroups. It gets
/// this time before the spawner removes them.
const COUNTER_GRACE: Duration = Duration::from_secs(1);
const MILLISECOND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Entry point of a process that the executor has started.
pub fn main() -> ExitCode {
    sys::close_inherited_descriptors();
    let inherited = sys::take_control_descriptor();
    let Ok(requests) = rustix::io::fcntl_dupfd_cloexec(&inherited, 3) else { return ExitCode::FAILURE };
    if let Err(errno) = rustix::net::sockopt::socket_type(&requests) {
        return fail(errno);
    }
    // Number 0 stays occupied by /dev/null; a box must not inherit a copy of the socket.
    match spawn_init::redirect_to_null(&[0]) {
        Ok(()) => std::mem::forget(inherited),
        Err(_) => return ExitCode::FAILURE,
    }
    spawn_init::apply_defaults();
    reserve_processes();
    serve(&requests)
}

/// Reserves processes for the server, which has the same user id as its rootless boxes. Processes
/// in a user namespace also count for its creator, against the RLIMIT_NPROC that the creator had at
/// that moment. With a lower limit here, forks in boxes fail while the server can still start
/// threads.
fn reserve_processes() {
    let Rlimit { current: Some(current), maximum } = getrlimit(Resource::Nproc) else { return };
    let reserved = SERVER_PROCESSES.min(current / 4);
    let _ = setrlimit(Resource::Nproc, Rlimit { current: Some(current - reserved), maximum });
}

/// Handles requests until the socket is closed and the last box has ended.
fn serve(requests: &OwnedFd) -> ExitCode {
    let ready = identity::leave_groups().and_then(|()| sys::child_descriptor());
    let signals = match ready {
        Ok(signals) => signals,
        Err(errno) => return fail(errno),
    };
    let mut spawner = Spawner {
        // The filter is the same for every box.
        filter: seccomp::program(),
        parents: Vec::new(),
        prefix: CString::default(),
        removal: Removal::WithBox,
        networks: NetworkPool::default(),
        boxes: BTreeMap::new(),
        removals: Vec::new(),
    };
    loop {
        if spawner.wait(&signals, Some(requests)) == Wake::Other {
            continue;
        }
        match wire::receive(requests) {
            Ok(Some((Request::GvisorInit, descriptors))) => gvisor_init::run(requests, descriptors),
            Ok(Some((request, descriptors))) => spawner.answer(request, descriptors),
            Ok(None) => break,
            Err(errno) => return fail(errno),
        }
    }
    // Boxes that were paused when the executor died could not end.
    if !spawner.prefix.is_empty() {
        cgroups::thaw(&spawner.parents, &spawner.prefix);
    }
    while !spawner.boxes.is_empty() {
        spawner.wait(&signals, None);
    }
    spawner.schedule_all_removals();
    while !spawner.removals.is_empty() {
        spawner.remove_groups();
        let _ = rustix::thread::nanosleep(&MILLISECOND);
    }
    ExitCode::SUCCESS
}

/// Result of waiting for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Request,
    Other,
}

struct Spawner {
    filter: Vec<BpfInstruction>,
    parents: Vec<OwnedFd>,
    prefix: CString,
    removal: Removal,
    networks: NetworkPool,
    /// Boxes by the PID of their PID 1.
    boxes: BTreeMap<i32, BoxEntry>,
    /// Cgroups of ended boxes.
    removals: Vec<PendingRemoval>,
}

struct PendingRemoval {
    group: GroupDirectory,
    /// Attempts to remove it so far.
    attempts: u32,
    /// Not to be removed before this time.
    not_before: Option<Instant>,
}

struct BoxEntry {
    number: u64,
    /// Host uid and network namespace, to be reused after the box.
    network: Option<(u32, OwnedFd)>,
}

impl Spawner {
    /// Waits for an ended box or a request, and handles ended boxes.
    fn wait(&mut self, signals: &OwnedFd, requests: Option<&OwnedFd>) -> Wake {
        let mut events = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        events.extend(requests.map(|requests| PollFd::from_borrowed_fd(requests.as_fd(), PollFlags::IN)));
        let timeout = (!self.removals.is_empty()).then_some(&MILLISECOND);
        let _ = rustix::event::poll(&mut events, timeout);
        if !events[0].revents().is_empty() {
            while sys::read_signal(signals.as_fd()).is_ok() {}
            self.reap_boxes();
        }
        self.remove_groups();
        match events.get(1) {
            Some(requests) if !requests.revents().is_empty() => Wake::Request,
            _ => Wake::Other,
        }
    }

    fn answer(&mut self, request: Request, mut descriptors: Vec<OwnedFd>) {
        match request {
            Request::Box { number, identity, network } => {
                // Without a socket there is nothing to answer on.
                let [control, cgroup @ ..] = descriptors.as_slice() else { return };
                let cgroup = cgroup.first().map(AsFd::as_fd);
                let network = match network {
                    NetworkSource::New => None,
                    NetworkSource::Reused => self.networks.enter(identity.host_uid).ok(),
                };
                let network_setup = if network.is_some() { NetworkSetup::Existing } else { NetworkSetup::InHelper };
                let filter = || Some(self.filter.clone());
                match spawn_init::clone_init(&identity, control, cgroup, network_setup, filter) {
                    Ok(pid) => {
                        let network = network.map(|network| (identity.host_uid, network));
                        self.boxes.insert(pid.as_raw_nonzero().get(), BoxEntry { number, network });
                    }
                    Err(failure) => {
                        let _ = wire::send(control, &Report::Failed(failure), &[]);
                    }
                }
            }
            Request::Parents { prefix, removal } => {
                (self.parents, self.prefix, self.removal) = (descriptors, prefix, removal);
            }
            Request::BaseRootfs if descriptors.len() >= 2 => {
                let trees = descriptors.split_off(2);
                let answer = match enter_base_rootfs(&descriptors[1], trees) {
                    Ok(()) => Reply::Done,
                    Err(errno) => Reply::Failed(errno.raw_os_error()),
                };
                let _ = wire::send(&descriptors[0], &answer, &[]);
            }
            Request::BaseRootfs | Request::GvisorInit => {}
            Request::Mapping { owner, host } => {
                let Some(reply) = descriptors.first() else { return };
                let _ = match sources::mapping(owner, host) {
                    Ok(namespace) => wire::send(reply, &Reply::Done, &[namespace.as_fd()]),
                    Err(errno) => wire::send(reply, &Reply::Failed(errno.raw_os_error()), &[]),
                };
            }
        }
    }

    /// Reaps every PID 1 that has ended, and schedules the removal of its cgroups.
    fn reap_boxes(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(BoxEntry { number, network }) = self.boxes.remove(&pid.as_raw_nonzero().get()) else { continue };
            if let Some((user, namespace)) = network {
                self.networks.put_back(user, namespace);
            }
            if self.removal == Removal::WithBox {
                let name = [self.prefix.as_bytes(), number.to_string().as_bytes()].concat();
                let name = CString::new(name).unwrap_or_default();
                let not_before = status.signaled().then(|| Instant::now() + COUNTER_GRACE);
                let groups = (0..self.parents.len()).map(|parent| GroupDirectory { parent, name: name.clone() });
                self.removals.extend(groups.map(|group| PendingRemoval { group, attempts: 0, not_before }));
            }
        }
    }

    /// Tries to remove cgroups. The next executor removes those that stay busy too long.
    fn remove_groups(&mut self) {
        self.removals.retain_mut(|PendingRemoval { group, attempts, not_before }| {
            if not_before.is_some_and(|time| Instant::now() < time) {
                return true;
            }
            *attempts += 1;
            *attempts <= MAX_ATTEMPTS && cgroups::remove(&self.parents, group) == Err(Errno::BUSY)
        });
    }

    /// Schedules the removal of all cgroups of the executor, which has ended.
    fn schedule_all_removals(&mut self) {
        // The executor, which would read their counters, is gone.
        self.removals.clear();
        // An empty prefix would match every directory.
        if !self.prefix.is_empty() {
            let groups = cgroups::find(&self.parents, &self.prefix);
            self.removals.extend(groups.into_iter().map(|group| PendingRemoval {
                group,
                attempts: 0,
                not_before: None,
            }));
        }
    }
}

/// Enters a new mount namespace with the base rootfs as root, so that the host's mounts are out of
/// reach for this process and for boxes. A child builds it, because every box is a copy of this
/// process, which should stay small.
fn enter_base_rootfs(packed: &OwnedFd, trees: Vec<OwnedFd>) -> Result<()> {
    let (result, report) = pipe_with(PipeFlags::CLOEXEC)?;
    let spawner = rustix::process::getpid();
    let builder = match sys::clone_into_namespaces(libc::CLONE_NEWNS as u64, None)? {
        Fork::Parent(builder) => builder,
        Fork::Child => {
            let errno = build_base_rootfs(packed, trees).map_or_else(|errno| errno.raw_os_error(), |()| 0);
            let _ = rustix::io::write(&report, &errno.to_le_bytes());
            sources::hold_namespace(spawner)
        }
    };
    drop(report);
    let mut errno = [0; 4];
    let entered = match rustix::io::read(&result, &mut errno)? {
        4 if errno == [0; 4] => rustix::process::pidfd_open(builder, PidfdFlags::empty()).and_then(|handle| {
            rustix::thread::move_into_thread_name_spaces(handle.as_fd(), ThreadNameSpaceType::MOUNT)
        }),
        4 => Err(Errno::from_raw_os_error(i32::from_le_bytes(errno))),
        _ => Err(Errno::CHILD),
    };
    rustix::process::kill_process(builder, Signal::KILL)?;
    rustix::process::waitpid(Some(builder), WaitOptions::empty())?;
    entered
}

fn build_base_rootfs(packed: &OwnedFd, trees: Vec<OwnedFd>) -> Result<()> {
    let operations: Vec<Operation> = wire::unpack(packed)?;
    let raw = |failure: Failure| Errno::from_raw_os_error(failure.errno);
    mounts::can_clone_detached()?;
    root::detach_from_host().map_err(raw)?;
    rustix::process::umask(Mode::empty());
    let new_root = root::build(&operations, trees).map_err(raw)?;
    root::enter(&new_root).map_err(raw)
}

/// The process was started by hand, or received something that is not a request.
fn fail(errno: Errno) -> ExitCode {
    let failure = Failure::new(Step::ReadPlan, "", errno);
    let text = format!("ringwall: {failure}\n  hint: ringwall starts this process itself; do not start it by hand\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    ExitCode::from(BAD_INPUT)
}
