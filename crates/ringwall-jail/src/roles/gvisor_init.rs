//! PID 1 of the namespaces in which runsc (gVisor) runs its programs.
//!
//! runsc starts processes that outlive its commands, and writes state files that name them. In
//! these namespaces the kernel kills all of them with this process, and the state files are on a
//! tmpfs. The root is built like that of a box, but programs keep root's privileges, because runsc
//! needs them. Only programs of gVisor run here.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::MountFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::protocol::plan::Operation;
use crate::protocol::report::{Ending, Failure, Step};
use crate::sys::{self, Fork};
use crate::{
    protocol::wire,
    roles::{command, init, start},
    setup::{cgroups, identity, root},
};

/// With the network namespace: gVisor's programs find each other by abstract Unix sockets, which
/// are per network namespace.
const NAMESPACES: u64 =
    (libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWNET) as u64;
const NOT_STARTED: i32 = 127;

/// A message to this process, after the operations of its root.
#[derive(Debug, Serialize, Deserialize)]
pub enum GvisorRequest {
    /// Starts a program. Descriptors: its three standard streams, then those of its cgroups
    /// (`entry`).
    Run { number: u32, argv: Vec<CString>, entry: CgroupEntry },
    /// Reports the end of the process whose PID a program wrote to this file.
    Follow { number: u32, file: CString },
    /// Kills all processes and reports their CPU time.
    End,
}

/// How a program joins its cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupEntry {
    /// It has none of its own.
    None,
    /// It writes itself into the tasks files of its v1 cgroups.
    TasksFiles,
    /// It is cloned into the v2 cgroup directory.
    CloneInto,
}

/// A message from this process.
#[derive(Debug, Serialize, Deserialize)]
pub enum GvisorReport {
    /// The root is built. Descriptor: pidfd of this process.
    Ready,
    Failed(Failure),
    /// A program has ended.
    Ended {
        number: u32,
        ending: Ending,
    },
    /// All other processes have ended.
    AllEnded {
        cpu_microseconds: u64,
    },
}

/// Becomes the parent of gVisor's init, and exits after it. The control socket passes to the child.
pub(crate) fn run(control: &OwnedFd, mut descriptors: Vec<OwnedFd>) -> ! {
    let operations = descriptors.drain(..1.min(descriptors.len())).next().map(wire::unpack::<Vec<Operation>>);
    let begun = match operations {
        Some(Ok(operations)) => clone_init(control, &operations, descriptors),
        Some(Err(errno)) => Err(Failure::new(Step::ReadPlan, "", errno)),
        None => Err(Failure::plain(Step::ReadPlan, "(the request has no operations)")),
    };
    match begun {
        Ok(()) => sys::exit_now(0),
        Err(failure) => {
            let _ = wire::send(control, &GvisorReport::Failed(failure), &[]);
            sys::exit_now(1)
        }
    }
}

fn clone_init(control: &OwnedFd, operations: &[Operation], trees: Vec<OwnedFd>) -> std::result::Result<(), Failure> {
    let fail = |errno| Failure::new(Step::MakeNamespaces, "", errno);
    // Detects a parent that ended before the child had set its parent-death signal.
    let (alive, held) = pipe_with(PipeFlags::CLOEXEC).map_err(fail)?;
    match sys::clone_into_namespaces(NAMESPACES, None).map_err(fail)? {
        Fork::Child => {
            drop(held);
            let _ = identity::die_with_parent();
            rustix::io::ioctl_fionbio(&alive, true).map_err(fail)?;
            if rustix::io::read(&alive, &mut [0; 1]) != Err(Errno::AGAIN) {
                sys::exit_now(1);
            }
            drop(alive);
            match enter_root(operations, trees) {
                Ok(()) => serve(control),
                Err(failure) => {
                    let _ = wire::send(control, &GvisorReport::Failed(failure), &[]);
                    sys::exit_now(1)
                }
            }
        }
        Fork::Parent(child) => {
            // Only the child keeps the control socket, so it closes when the child ends.
            sys::close_all_but(&[held.as_fd()]);
            while matches!(rustix::process::waitpid(Some(child), WaitOptions::empty()), Err(Errno::INTR)) {}
            sys::exit_now(0)
        }
    }
}

/// Builds and enters the root. Its /proc is writable: runsc writes user id mappings there.
fn enter_root(operations: &[Operation], trees: Vec<OwnedFd>) -> std::result::Result<(), Failure> {
    root::detach_from_host()?;
    rustix::process::umask(Mode::empty());
    let new_root = root::build(operations, trees)?;
    root::enter(&new_root)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"proc", c"/proc", c"proc", flags, None)
        .map_err(|errno| Failure::new(Step::BuildRoot, "/proc", errno))
}

/// Starts programs on request and reaps all children, until the executor asks for the end or closes
/// the socket.
fn serve(control: &OwnedFd) -> ! {
    let ready = || -> Result<OwnedFd> {
        let signals = sys::child_descriptor()?;
        let handle = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        wire::send(control, &GvisorReport::Ready, &[handle.as_fd()])?;
        Ok(signals)
    };
    let signals = match ready() {
        Ok(signals) => signals,
        Err(errno) => {
            let _ = wire::send(control, &GvisorReport::Failed(Failure::new(Step::StartCommand, "", errno)), &[]);
            sys::exit_now(1)
        }
    };
    let mut programs = BTreeMap::new();
    loop {
        let mut events = [
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut events, None);
        let has_request = !events[1].revents().is_empty();
        while sys::read_signal(signals.as_fd()).is_ok() {}
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if let Some(number) = programs.remove(&pid.as_raw_nonzero().get()) {
                report(control, &GvisorReport::Ended { number, ending: init::ending_of(status) });
            }
        }
        if !has_request {
            continue;
        }
        match start::receive(control) {
            (GvisorRequest::Run { number, argv, entry }, descriptors) => {
                match start_program(&argv, entry, &descriptors) {
                    Ok(pid) => drop(programs.insert(pid.as_raw_nonzero().get(), number)),
                    Err(_) => report(control, &GvisorReport::Ended { number, ending: Ending::Exited(NOT_STARTED) }),
                }
            }
            (GvisorRequest::Follow { number, file }, _) => match read_pid(&file) {
                Some(pid) => drop(programs.insert(pid.as_raw_nonzero().get(), number)),
                None => report(control, &GvisorReport::Ended { number, ending: Ending::Signalled(libc::SIGKILL) }),
            },
            (GvisorRequest::End, _) => {
                let _ = sys::signal_all(libc::SIGKILL);
                while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
                let cpu_microseconds = sys::children_usage().cpu_microseconds;
                report(control, &GvisorReport::AllEnded { cpu_microseconds });
                sys::exit_now(0)
            }
        }
    }
}

/// `None` if the process has ended. Every process here becomes our child when its parent ends, so a
/// PID that is gone has been reaped.
fn read_pid(file: &CStr) -> Option<Pid> {
    let file = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 16];
    let count = rustix::io::read(&file, &mut text).ok()?;
    let pid = Pid::from_raw(std::str::from_utf8(&text[..count]).ok()?.trim().parse().ok()?)?;
    rustix::process::test_kill_process(pid).ok().map(|()| pid)
}

/// Exits if the executor has closed the socket.
fn report(control: &OwnedFd, message: &GvisorReport) {
    if wire::send(control, message, &[]).is_err() {
        sys::exit_now(1);
    }
}

fn start_program(argv: &[CString], entry: CgroupEntry, descriptors: &[OwnedFd]) -> Result<Pid> {
    let ([stdin, stdout, stderr, cgroups @ ..], Some(program)) = (descriptors, argv.first()) else {
        return Err(Errno::INVAL);
    };
    let cgroup = (entry == CgroupEntry::CloneInto).then(|| cgroups.first().map(AsFd::as_fd)).flatten();
    match sys::clone_into_namespaces(0, cgroup)? {
        Fork::Parent(pid) => Ok(pid),
        Fork::Child => {
            let prepare = || -> Result<()> {
                if entry == CgroupEntry::TasksFiles {
                    cgroups::join(cgroups).map_err(|failure| Errno::from_raw_os_error(failure.errno))?;
                }
                for (number, stream) in [stdin, stdout, stderr].into_iter().enumerate() {
                    sys::dup_to(stream.as_fd(), number as i32)?;
                }
                sys::close_descriptors_on_execute(command::FIRST_EXTRA_FD)?;
                rustix::process::setsid()?;
                sys::set_signal_mask(false);
                Ok(())
            };
            if prepare().is_ok() {
                let _ = sys::execute(program, argv, &[]);
            }
            sys::exit_now(NOT_STARTED)
        }
    }
}
