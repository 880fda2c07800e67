//! From a grant to a running box: lower it, ask the spawner for a warden, wait until everything is in force.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use jail::plan::CgroupVersion;
use jail::report::{Report, Step};
use jail::{Birth, Start, wire};
use policy::Grant;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::UnixStream;

use crate::cgroup;
use crate::error::Error;
use crate::host::Host;
use crate::image::Store;
use crate::limits::host_ids;
use crate::lower::{Particulars, lower};
use crate::running::{Running, Streams, receive};
use crate::sources::{self, Sources};
use crate::spawner::Spawner;

/// The first of the user ids that boxes get as root: in the range that systemd's table of ids leaves unused.
const FIRST_BOX_UID: u32 = 1_880_000_000;

/// Makes boxes.
#[derive(Debug)]
pub struct Executor {
    host: Host,
    spawner: Spawner,
    images: Store,
    /// Our own files, hidden from every box; `None` while there are none.
    data: Option<PathBuf>,
    started: AtomicU64,
    start_time: u64,
}

/// A box of which only the namespaces exist.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) control: OwnedFd,
}

/// What is no permission: how the box is shown, and where a test wants it to stop.
#[derive(Debug, Default, Clone, Copy)]
pub struct Options {
    pub terminal: Option<jail::plan::WindowSize>,
    pub hold_at: Option<Hold>,
}

/// Stop half-made at this step, say so, and wait for the end: crash tests kill boxes at each step.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    pub step: Step,
    pub held: fn(Step),
}

impl Executor {
    pub fn new(host: Host, data: &Path) -> Result<Self, Error> {
        Ok(Executor {
            host,
            spawner: Spawner::new()?,
            images: Store::open(data),
            data: sources::follow(data),
            started: AtomicU64::new(0),
            start_time: cgroup::own_start_time(),
        })
    }

    /// Removes what executors that were killed together with their wardens left behind.
    pub fn sweep(&self) {
        if let Ok(layout) = &self.host.cgroups {
            layout.sweep();
        }
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Begins a box before its grant is known: empty namespaces, in which nothing runs and nothing is mounted. They
    /// get ready while the caller decides; dropping them ends them.
    pub fn prepare(&self) -> Result<Prepared, Error> {
        let birth = match &self.host.cgroups {
            Ok(layout) if layout.version == CgroupVersion::V2 => Birth::IntoCgroup,
            _ => Birth::Early,
        };
        let (control, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(talk)?;
        self.spawner.request(birth, theirs.as_fd())?;
        Ok(Prepared { control })
    }

    /// Starts the granted command. When this returns, every protection is in force and the command begins.
    pub async fn start(&self, grant: Grant, options: Options) -> Result<Running, Error> {
        self.start_prepared(self.prepare()?, grant, options).await
    }

    /// The same in namespaces that were begun before.
    pub async fn start_prepared(
        &self,
        Prepared { control }: Prepared,
        grant: Grant,
        options: Options,
    ) -> Result<Running, Error> {
        let began = Instant::now();
        let sources = Sources::open(&grant, &self.images, self.data.as_deref())?;
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let (host_uid, host_gid) = host_ids(&self.host, grant.workspace(), box_uid(number));
        let particulars = Particulars {
            name: cgroup::box_name(self.start_time, number),
            host_uid,
            host_gid,
            terminal: options.terminal,
            hold_at: options.hold_at.map(|hold| hold.step),
            hidden: self.data.clone(),
        };
        let plan = lower(&grant, &self.host, &sources, &particulars)?;
        let groups = plan.cgroups.as_ref().map(cgroup::directories).unwrap_or_default();
        let plan = wire::pack(&plan).map_err(talk)?;
        let mut streams = None;
        match options.terminal {
            Some(_) => hand_over(&control, &[plan.as_fd()])?,
            None => {
                let (ours, [stdin, stdout, stderr]) = pipes(host_uid, host_gid).map_err(talk)?;
                let descriptors = [plan.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
                hand_over(&control, &descriptors)?;
                streams = Some(ours);
            }
        }
        drop(plan);
        rustix::io::ioctl_fionbio(&control, true).map_err(talk)?;
        let control = UnixStream::from_std(control.into()).map_err(Error::Talk)?;
        let mut running = Running::new(control, began, grant.effective().limits.get(policy::Field::TimeoutMs), groups);
        loop {
            match receive(running.control()).await? {
                Some((Report::Started { warden, protections, steps }, _)) => {
                    running.started(warden, protections, steps);
                    break;
                }
                Some((Report::Terminal, descriptors)) => {
                    streams = descriptors.into_iter().next().map(Streams::Terminal);
                }
                Some((Report::Failed(failure), _)) => return Err(Error::Setup(failure)),
                Some((Report::Holding(step), _)) => {
                    if let Some(hold) = options.hold_at {
                        (hold.held)(step);
                    }
                    running.hold().await;
                    return Err(Error::Held(step));
                }
                Some((Report::NotExecuted { .. } | Report::Ended { .. } | Report::Closed(_), _)) | None => {
                    running.clean_up().await;
                    return Err(Error::JailDied);
                }
            }
        }
        running.streams = streams;
        drop(sources);
        Ok(running)
    }
}

/// Sends the plan. A warden that is gone already has said why, and that is read next.
fn hand_over(control: &OwnedFd, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
    match wire::send(control, &Start::Plan, descriptors) {
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(talk(errno)),
    }
}

/// A user id that no other living box has: process ids are unique while they live, and a process goes through
/// 60 ids of its own before it comes back to the first.
fn box_uid(number: u64) -> u32 {
    const PROCESS_IDS: u32 = 1 << 22;
    FIRST_BOX_UID + (number % 60) as u32 * PROCESS_IDS + std::process::id() % PROCESS_IDS
}

fn talk(errno: Errno) -> Error {
    Error::Talk(errno.into())
}

/// Three pipes: our ends and the command's. A box never holds a descriptor of the host's. The pipes belong to the
/// box's user, because programs open their own streams again by name (`> /dev/stderr`).
fn pipes(uid: u32, gid: u32) -> rustix::io::Result<(Streams, [OwnedFd; 3])> {
    let make = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fchown(&read, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        Ok((read, write))
    };
    let ((stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr)) = (make()?, make()?, make()?);
    let ours = Streams::Pipes { stdin: our_stdin, stdout: our_stdout, stderr: our_stderr };
    Ok((ours, [stdin, stdout, stderr]))
}
