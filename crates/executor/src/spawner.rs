//! The process that is the parent of all boxes of this executor: our own program in the jail's role.
//!
//! Started by posix_spawn, which copies no memory however large this process is, with one socket and an empty
//! environment. Everything a box needs is sent to its PID 1, so that a box started at the same moment by another
//! thread cannot inherit it. A spawner that died is started again by the next request.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use jail::plan::{CgroupVersion, Owner};
use jail::{Answer, PROCESS_NAME, Removal, Request, wire};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::cgroup;
use crate::error::{Error, talk};
use crate::host::Host;
use crate::lower::Birthplace;
use crate::program::Program;
use crate::skeleton::Skeleton;

#[derive(Debug)]
pub(crate) struct Spawner {
    program: Program,
    /// What a process that is started here is to stand in.
    skeleton: Option<Skeleton>,
    groups: GroupPlaces,
    process: Mutex<Option<Process>>,
}

/// Where boxes get their cgroups, how those are named, and when they go at the latest.
#[derive(Debug)]
struct GroupPlaces {
    parents: Vec<CString>,
    prefix: String,
    removal: Removal,
}

#[derive(Debug)]
struct Process {
    requests: OwnedFd,
    child: Child,
    birthplace: Birthplace,
}

impl Spawner {
    /// The process itself starts with the first box.
    pub(crate) fn new(host: &Host) -> Result<Self, Error> {
        let process = Mutex::new(None);
        let (program, skeleton) = (Program::choose()?, Skeleton::of(host));
        Ok(Spawner { program, skeleton, groups: GroupPlaces::of(host), process })
    }

    /// The name of a box's cgroups.
    pub(crate) fn group_name(&self, number: u64) -> String {
        format!("{}{number}", self.groups.prefix)
    }

    /// Whether a box's cgroups are there for the next one too.
    pub(crate) fn keeps_groups(&self) -> bool {
        self.groups.removal == Removal::WithTheExecutor
    }

    /// Where the process stands; starts it if need be.
    pub(crate) fn birthplace(&self) -> Result<Birthplace, Error> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.is_none() {
            *process = Some(self.start()?);
        }
        Ok(process.as_ref().map_or(Birthplace::Host, |process| process.birthplace))
    }

    fn start(&self) -> Result<Process, Error> {
        let mut process = Process::start(&self.program)?;
        process.learn_groups(&self.groups)?;
        if let Some(skeleton) = &self.skeleton {
            process.birthplace = skeleton.offer(&process.requests)?;
        }
        Ok(process)
    }

    /// Asks the process for something, and says where it stands; starts it if need be.
    pub(crate) fn request(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Birthplace, Error> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |process: &Process| wire::send(&process.requests, request, descriptors);
        match process.as_ref().map(|process| (ask(process), process.birthplace)) {
            None | Some((Err(Errno::PIPE | Errno::CONNRESET), _)) => {
                let started = process.insert(self.start()?);
                ask(started).map_err(talk)?;
                Ok(started.birthplace)
            }
            Some((sent, birthplace)) => sent.map(|()| birthplace).map_err(talk),
        }
    }

    /// Whether what the process stands in is still what the host has.
    pub(crate) fn is_current(&self) -> bool {
        self.skeleton.as_ref().is_none_or(Skeleton::is_current)
    }

    /// A user namespace for a mount that shows the owner's files as the host user's.
    pub(crate) fn mapping(&self, owner: Owner, host: Owner) -> rustix::io::Result<OwnedFd> {
        let (ours, theirs) = wire::pair()?;
        self.request(&Request::Mapping { owner, host }, &[theirs.as_fd()]).map_err(|_| Errno::PIPE)?;
        drop(theirs);
        match wire::receive(&ours)? {
            Some((Answer::Done, descriptors)) => descriptors.into_iter().next().ok_or(Errno::BADMSG),
            Some((Answer::Refused(errno), _)) => Err(Errno::from_raw_os_error(errno)),
            None => Err(Errno::PIPE),
        }
    }
}

impl Process {
    /// Starts our own program in the jail's role.
    fn start(program: &Program) -> Result<Self, Error> {
        let (requests, theirs) = wire::pair().map_err(talk)?;
        #[expect(clippy::disallowed_methods, reason = "the one program that the product starts is its own jail")]
        let child = Command::new(program.path())
            .arg0(PROCESS_NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::StartJail)?;
        Ok(Process { requests, child, birthplace: Birthplace::Host })
    }

    /// It will not see the directories by name from a skeleton.
    fn learn_groups(&self, groups: &GroupPlaces) -> Result<(), Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &CString| rustix::fs::open(path, flags, Mode::empty());
        let opened: Vec<OwnedFd> = groups.parents.iter().map(open).collect::<Result<_, _>>().map_err(talk)?;
        let borrowed: Vec<BorrowedFd<'_>> = opened.iter().map(AsFd::as_fd).collect();
        let prefix = CString::new(groups.prefix.as_str()).map_err(|_| Error::NulByte("a cgroup's name"))?;
        wire::send(&self.requests, &Request::Parents { prefix, removal: groups.removal }, &borrowed).map_err(talk)
    }
}

impl GroupPlaces {
    fn of(host: &Host) -> Self {
        match &host.cgroups {
            Ok(layout) => GroupPlaces {
                parents: layout.parents().into_iter().cloned().collect(),
                prefix: cgroup::name_prefix(),
                // Used again are those of which one can see that they are empty and which can be made to forget.
                removal: match (layout.version, &layout.pids) {
                    (CgroupVersion::V1, Some(_)) => Removal::WithTheExecutor,
                    _ => Removal::WithItsBox,
                },
            },
            Err(_) => GroupPlaces { parents: Vec::new(), prefix: String::new(), removal: Removal::WithItsBox },
        }
    }
}

impl Drop for Process {
    /// The spawner ends after the last of its boxes, so this waits until nothing of any is left: no process, no mount,
    /// no cgroup.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.requests, Shutdown::Both);
        let _ = self.child.wait();
    }
}
