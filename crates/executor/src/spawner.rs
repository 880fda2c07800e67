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

use crate::error::Error;
use crate::program::Program;

#[derive(Debug)]
pub struct Spawner {
    program: Program,
    process: Mutex<Process>,
}

#[derive(Debug)]
struct Process {
    requests: OwnedFd,
    child: Child,
}

impl Spawner {
    /// Starts it and does not wait: it gets ready while the caller does other things.
    pub fn start() -> Result<Self, Error> {
        let program = Program::choose()?;
        let process = Mutex::new(Process::start(&program)?);
        Ok(Spawner { program, process })
    }

    /// Asks for a warden at the other end of this socket.
    pub(crate) fn request(&self, birth: Birth, control: BorrowedFd<'_>) -> Result<(), Error> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = |process: &Process| wire::send(&process.requests, &Request::Box(birth), &[control]);
        match ask(&process) {
            Err(Errno::PIPE | Errno::CONNRESET) => {
                *process = Process::start(&self.program)?;
                ask(&process).map_err(|errno| Error::Talk(errno.into()))
            }
            other => other.map_err(|errno| Error::Talk(errno.into())),
        }
    }

    /// No more boxes from this one; those that run go on.
    pub fn retire(&self) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::net::shutdown(&process.requests, Shutdown::Both);
    }
}

impl Process {
    fn start(program: &Program) -> Result<Self, Error> {
        let talk = |errno: Errno| Error::Talk(errno.into());
        let (requests, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(talk)?;
        #[expect(clippy::disallowed_methods, reason = "the one process that the product starts is its own jail")]
        let child = Command::new(program.path())
            .arg0(PROCESS_NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::StartJail)?;
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
