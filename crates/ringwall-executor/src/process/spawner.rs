//! The spawner: the parent process of all boxes of an executor, which is this program in its jail
//! role.
//!
//! It is started by posix_spawn, which copies no memory however large this process is, with one
//! socket and an empty environment. Everything a box needs is sent to its PID 1, so a box that
//! starts at the same time cannot inherit it. A spawner that died is replaced at the next request.
//! One that does not answer is retired: requests go to a new one, and it is killed after the last
//! of its boxes has ended, because its death would kill them.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_jail::plan::{CgroupVersion, Owner};
use ringwall_jail::{PROCESS_NAME, Removal, Reply, Request, wire};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;

use crate::cgroup::layout;
use crate::error::{Error, talk};
use crate::host::Host;
use crate::plan::lower::BaseRoot;
use crate::process::base_rootfs::BaseRootfs;
use crate::process::program::Program;

/// Time limit for an answer, and for the end after the socket was closed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Enough for the workspaces in use at one time, each with a few uids.
const MAX_MAPPINGS: usize = 128;

#[derive(Debug)]
pub(crate) struct Spawner {
    program: Program,
    /// The root for new spawner processes, if boxes can share one.
    base_rootfs: Option<BaseRootfs>,
    groups: GroupPaths,
    processes: Mutex<Processes>,
    /// User namespaces for id-mapped mounts, by owner of the files and uid of the box, least recently
    /// used first. Making one needs a process, which takes longer than all other work when a warm box
    /// is taken. No process of a box is ever in one.
    mappings: Mutex<Vec<((Owner, Owner), OwnedFd)>>,
}

#[derive(Debug, Default)]
struct Processes {
    current: Option<Process>,
    retired: Vec<Process>,
}

/// The spawner process that was asked for a box. It is not killed while this value exists.
#[derive(Debug, Clone)]
pub(crate) struct Parent {
    pub(crate) base_root: BaseRoot,
    boxes: Arc<()>,
}

/// Parent directories and name prefix of the boxes' cgroups, and when the spawner removes them.
#[derive(Debug)]
struct GroupPaths {
    parents: Vec<CString>,
    prefix: String,
    removal: Removal,
}

#[derive(Debug)]
struct Process {
    requests: OwnedFd,
    child: Child,
    base_root: BaseRoot,
    /// One reference per box of this process.
    boxes: Arc<()>,
}

impl Spawner {
    /// The process starts with the first box.
    pub(crate) fn new(host: &Host) -> Result<Self, Error> {
        let (program, base_rootfs) = (Program::choose()?, BaseRootfs::of(host));
        Ok(Spawner {
            program,
            base_rootfs,
            groups: GroupPaths::of(host),
            processes: Mutex::default(),
            mappings: Mutex::default(),
        })
    }

    /// The executable of jail processes.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// The name of a box's cgroups.
    pub(crate) fn group_name(&self, number: u64) -> String {
        format!("{}{number}", self.groups.prefix)
    }

    /// True if cgroups of an ended box stay for the next one.
    pub(crate) fn keeps_groups(&self) -> bool {
        self.groups.removal == Removal::WithExecutor
    }

    /// The root in which the spawner makes PID 1; starts the spawner if needed.
    pub(crate) fn base_root(&self) -> Result<BaseRoot, Error> {
        let mut processes = self.processes.lock();
        if processes.current.is_none() {
            processes.current = Some(self.start()?);
        }
        Ok(processes.current.as_ref().map_or(BaseRoot::Host, |process| process.base_root))
    }

    fn start(&self) -> Result<Process, Error> {
        let mut process = Process::start(&self.program)?;
        process.learn_groups(&self.groups)?;
        if let Some(base_rootfs) = &self.base_rootfs {
            process.base_root = base_rootfs.offer(&process.requests)?;
        }
        Ok(process)
    }

    /// Sends a request and returns the process that got it; starts the spawner if needed.
    pub(crate) fn request(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Parent, Error> {
        let mut processes = self.processes.lock();
        processes.end_retired();
        let ask = |process: &Process| wire::send(&process.requests, request, descriptors);
        match processes.current.as_ref().map(|process| (ask(process), process.parent())) {
            Some((Ok(()), parent)) => return Ok(parent),
            // The socket buffer is full, which means that the process does not read.
            Some((Err(Errno::AGAIN), _)) => processes.retire(),
            None | Some((Err(Errno::PIPE | Errno::CONNRESET), _)) => {}
            Some((Err(errno), _)) => return Err(talk(errno)),
        }
        let started = processes.current.insert(self.start()?);
        ask(started).map_err(talk)?;
        Ok(started.parent())
    }

    /// Stops sending requests to this process. Its successor, if there is one, stays.
    pub(crate) fn retire(&self, parent: &Parent) {
        let mut processes = self.processes.lock();
        if processes.current.as_ref().is_some_and(|process| Arc::ptr_eq(&process.boxes, &parent.boxes)) {
            processes.retire();
        }
    }

    /// True if the base rootfs still shows the current files of the host.
    pub(crate) fn is_current(&self) -> bool {
        self.base_rootfs.as_ref().is_none_or(BaseRootfs::is_current)
    }

    /// A user namespace for a mount that shows `owner`'s files as those of `host`.
    pub(crate) fn mapping(&self, owner: Owner, host: Owner) -> rustix::io::Result<OwnedFd> {
        let mut cached = self.mappings.lock();
        let found = cached.iter().position(|(known, _)| *known == (owner, host)).map(|found| cached.remove(found).1);
        // Not held while the spawner works.
        drop(cached);
        let namespace = found.map_or_else(|| self.new_mapping(owner, host), Ok)?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&namespace, 0);
        let mut cached = self.mappings.lock();
        if cached.len() >= MAX_MAPPINGS {
            cached.remove(0);
        }
        cached.push(((owner, host), namespace));
        copy
    }

    fn new_mapping(&self, owner: Owner, host: Owner) -> rustix::io::Result<OwnedFd> {
        let (ours, theirs) = wire::pair()?;
        let parent = self.request(&Request::Mapping { owner, host }, &[theirs.as_fd()]).map_err(|_| Errno::PIPE)?;
        drop(theirs);
        match receive_answer(&ours) {
            Ok(Some((Reply::Done, descriptors))) => descriptors.into_iter().next().ok_or(Errno::BADMSG),
            Ok(Some((Reply::Failed(errno), _))) => Err(Errno::from_raw_os_error(errno)),
            Ok(None) => Err(Errno::PIPE),
            Err(errno) => {
                self.retire(&parent);
                Err(errno)
            }
        }
    }
}

/// Receives the answer to a request; a missing answer is `ETIMEDOUT`.
pub(crate) fn receive_answer(socket: &OwnedFd) -> rustix::io::Result<Option<(Reply, Vec<OwnedFd>)>> {
    set_socket_timeout(socket, Timeout::Recv, Some(TIMEOUT))?;
    match wire::receive(socket) {
        Err(Errno::AGAIN) => Err(Errno::TIMEDOUT),
        received => received,
    }
}

impl Processes {
    fn retire(&mut self) {
        self.retired.extend(self.current.take());
    }

    /// Kills retired processes without boxes. They did not answer, so they are not waited for.
    fn end_retired(&mut self) {
        for mut process in self.retired.extract_if(.., |process| Arc::strong_count(&process.boxes) == 1) {
            let _ = process.child.kill();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.retired {
            let _ = process.child.kill();
        }
    }
}

impl Process {
    /// Starts our own program in the jail's role.
    fn start(program: &Program) -> Result<Self, Error> {
        let (requests, theirs) = wire::pair().map_err(talk)?;
        // A full socket must not block this process.
        rustix::io::ioctl_fionbio(&requests, true).map_err(talk)?;
        #[expect(clippy::disallowed_methods, reason = "the one program that the product starts is its own jail")]
        let child = Command::new(program.path())
            .arg0(PROCESS_NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::StartJail)?;
        Ok(Process { requests, child, base_root: BaseRoot::Host, boxes: Arc::default() })
    }

    fn parent(&self) -> Parent {
        Parent { base_root: self.base_root, boxes: Arc::clone(&self.boxes) }
    }

    /// The base rootfs does not show the cgroup directories, so they are sent as descriptors.
    fn learn_groups(&self, groups: &GroupPaths) -> Result<(), Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &CString| rustix::fs::open(path, flags, Mode::empty());
        let opened: Vec<OwnedFd> = groups.parents.iter().map(open).collect::<Result<_, _>>().map_err(talk)?;
        let borrowed: Vec<BorrowedFd<'_>> = opened.iter().map(AsFd::as_fd).collect();
        let prefix = CString::new(groups.prefix.as_str()).map_err(|_| Error::NulByte("a cgroup's name"))?;
        wire::send(&self.requests, &Request::Parents { prefix, removal: groups.removal }, &borrowed).map_err(talk)
    }
}

impl GroupPaths {
    fn of(host: &Host) -> Self {
        match &host.cgroups {
            Ok(layout) => GroupPaths {
                parents: layout.parents().into_iter().cloned().collect(),
                prefix: layout::name_prefix(),
                // Reusable groups need a process count and resettable counters.
                removal: match (layout.version, &layout.pids) {
                    (CgroupVersion::V1, Some(_)) => Removal::WithExecutor,
                    _ => Removal::WithBox,
                },
            },
            Err(_) => GroupPaths { parents: Vec::new(), prefix: String::new(), removal: Removal::WithBox },
        }
    }
}

impl Drop for Process {
    /// The spawner exits after its last box, so this returns when no process, mount or cgroup of
    /// its boxes is left. After [`TIMEOUT`] it is killed together with its boxes.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.requests, Shutdown::Both);
        if !self.ends_in_time() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Process {
    fn ends_in_time(&self) -> bool {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // The PID of a child that was not waited for is not reused.
        let Some(Ok(handle)) = number.map(|number| rustix::process::pidfd_open(number, PidfdFlags::empty())) else {
            return false;
        };
        let timeout = Timespec { tv_sec: TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
        let ended = rustix::io::retry_on_intr(|| {
            rustix::event::poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout))
        });
        ended == Ok(1)
    }
}
