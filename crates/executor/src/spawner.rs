//! The process from which all boxes of this executor come: our own binary, started once in the jail's role.
//!
//! Started by posix_spawn, which copies no memory however large this process is, with one socket and an empty
//! environment. Everything a box needs is sent to it, so that a box started at the same moment by another thread
//! cannot inherit it. A spawner that died is started again by the next request; boxes do not
//! depend on it once they exist.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use jail::{Birth, PROCESS_NAME, Request, wire};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use crate::cgroup;
use crate::error::Error;
use crate::program::Program;
use crate::start::Prepared;

#[derive(Debug)]
pub(crate) struct Spawner {
    program: Program,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    requests: OwnedFd,
    child: Child,
}

impl Spawner {
    /// The process itself starts with the first box.
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Spawner { program: Program::choose()?, process: Mutex::new(None) })
    }

    /// Asks for a warden at the other end of this socket.
    pub(crate) fn request(&self, birth: Birth, control: BorrowedFd<'_>) -> Result<(), Error> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |process: &Process| wire::send(&process.requests, &Request::Box(birth), &[control]);
        match process.as_ref().map(ask) {
            None | Some(Err(Errno::PIPE | Errno::CONNRESET)) => {
                let started = process.insert(Process::start(&self.program)?);
                ask(started).map_err(|errno| Error::Talk(errno.into()))
            }
            Some(other) => other.map_err(|errno| Error::Talk(errno.into())),
        }
    }
}

impl Process {
    fn start(program: &Program) -> Result<Self, Error> {
        let (requests, child) = launch(program, None)?;
        Ok(Process { requests, child })
    }
}

impl Drop for Process {
    /// The spawner ends after the last of its wardens, so this waits for every box that is still there.
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.requests, Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// A warden for one box, started without a spawner: for a program that makes one box and ends.
#[derive(Debug)]
pub struct Alone {
    child: Child,
    _program: Program,
}

impl Alone {
    /// Starts it and does not wait: the namespaces get ready while the caller does other things.
    pub fn start() -> Result<(Self, Prepared), Error> {
        let program = Program::choose()?;
        let birth = if cgroup::is_version_2() { Birth::IntoCgroup } else { Birth::Early };
        let (control, child) = launch(&program, Some(birth))?;
        Ok((Alone { child, _program: program }, Prepared { control }))
    }
}

impl Drop for Alone {
    /// Waits until nothing of the box is left: no process, no mount, no cgroup.
    fn drop(&mut self) {
        let _ = self.child.wait();
    }
}

/// Starts our own binary in the jail's role; returns our end of its socket.
fn launch(program: &Program, alone: Option<Birth>) -> Result<(OwnedFd, Child), Error> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|errno| Error::Talk(errno.into()))?;
    #[expect(clippy::disallowed_methods, reason = "the one program that the product starts is its own jail")]
    let child = Command::new(program.path())
        .arg0(PROCESS_NAME)
        .args(alone.map(Birth::word))
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Error::StartJail)?;
    Ok((ours, child))
}
