//! The birth of PID 1: a copy of this process in new namespaces, its ids mapped from outside.
//!
//! Usually the spawner bears it. A program that makes one box and ends may bear it itself, as the very first thing it
//! does, which saves a process; what the copy must not keep of that program is wiped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit};

use crate::protocol::plan::Identity;
use crate::protocol::report::{Failure, Step};
use crate::setup::network::Haste;
use crate::sys::{self, BpfInstruction, Fork};
use crate::{
    processor,
    protocol::wire,
    roles::init,
    setup::{identity, seccomp},
};

/// Bears PID 1 into new namespaces and, where one is given, into a cgroup. `prepare` runs in the child, before it does
/// anything else, and gives the filter.
pub(crate) fn bear(
    identity: &Identity,
    control: &OwnedFd,
    birthplace: Option<BorrowedFd<'_>>,
    haste: Haste,
    prepare: impl FnOnce() -> Option<Vec<BpfInstruction>>,
) -> Result<Pid, Failure> {
    let fail = |errno| Failure::new(Step::MakeNamespaces, "", errno);
    let (mapped, map) = pipe_with(PipeFlags::CLOEXEC).map_err(fail)?;
    match sys::clone_into_namespaces(init::NAMESPACES, birthplace).map_err(fail)? {
        Fork::Child => {
            // Nothing of our parent's may be in a box, not even in its PID 1.
            sys::close_all_but(&[control.as_fd(), mapped.as_fd()]);
            // Without a parent there is nobody who will map, nor anything left to live for.
            if rustix::io::read(&mapped, &mut [0; 1]) != Ok(1) {
                sys::exit_now(1);
            }
            drop(mapped);
            match prepare() {
                Some(filter) => init::main(control, &filter, haste),
                None => sys::exit_now(1),
            }
        }
        Fork::Parent(pid) => {
            if haste == Haste::First {
                processor::move_aside(pid);
            }
            let done = identity::map(pid, identity).and_then(|()| rustix::io::write(&map, &[1]).map_err(fail));
            if done.is_err() {
                // A child that was not waited for keeps its number, so this is the right one.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            }
            done.map(|_| pid)
        }
    }
}

/// PID 1 as a child of this program itself: our end of its socket, and its process id, to be waited for. Refused when
/// there are other threads, whose locks would be copied as they are.
pub fn bear_alone(identity: &Identity) -> Result<(OwnedFd, Pid), Failure> {
    let fail = |errno| Failure::new(Step::MakeNamespaces, "", errno);
    if thread_count().map_err(fail)? != 1 {
        return Err(fail(Errno::BUSY));
    }
    identity::leave_groups().map_err(fail)?;
    let (ours, theirs) = wire::pair().map_err(fail)?;
    let pid = bear(identity, &theirs, None, Haste::First, || {
        sys::forget_arguments(crate::PROCESS_NAME);
        // Without this somebody who waits for the end of our caller's output would wait for the box.
        stand_on_null(&[0, 1, 2]).ok()?;
        settle();
        Some(seccomp::program())
    })?;
    Ok((ours, pid))
}

/// The ways of a jail, which every box inherits.
pub(crate) fn settle() {
    let _ = rustix::thread::set_name(c"ringwall-jail");
    // Out of the caller's process group: a Ctrl-C at the caller's terminal is the executor's to handle.
    let _ = rustix::process::setsid();
    sys::reset_signals();
    give_up_oom_protection();
    raise_open_files();
}

/// Raises RLIMIT_NOFILE of this process to its maximum. A process can send descriptors only while its user has fewer
/// unreceived ones than this; the command of a box gets the limit of its plan.
pub fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// A server may be spared by the kernel when memory runs out; its boxes must not be.
fn give_up_oom_protection() {
    let mut value = [0; 16];
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty())
        && let Ok(count) = rustix::io::read(&file, &mut value)
        && value[..count].starts_with(b"-")
    {
        let _ = rustix::io::pwrite(&file, b"0", 0);
    }
}

/// How many threads this process has: its directory of them has two links more.
fn thread_count() -> rustix::io::Result<u64> {
    Ok(rustix::fs::stat(c"/proc/self/task")?.st_nlink.saturating_sub(2))
}

/// Makes /dev/null of these standard streams, so that nothing received later lands where a command's streams go.
pub(crate) fn stand_on_null(numbers: &[i32]) -> rustix::io::Result<()> {
    let flags = OFlags::RDWR;
    let null = rustix::fs::open(c"/dev/null", flags, Mode::empty())?;
    numbers.iter().try_for_each(|number| sys::place_descriptor(null.as_fd(), *number))
}
