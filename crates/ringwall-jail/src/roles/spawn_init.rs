//! Clones PID 1 of a box into new namespaces and writes its id mapping.
//!
//! The spawner does this for a server. `ringwall run`, which makes a single box, clones its own
//! process first of all, while it has one thread; that saves a process. (It uses a spawner on
//! cgroup v2, where PID 1 is cloned into a cgroup that does not exist yet, and on kernels without
//! Landlock.) The copy's arguments, environment and descriptors are wiped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit};

use crate::protocol::plan::Identity;
use crate::protocol::report::{Failure, Step};
use crate::setup::network::NetworkSetup;
use crate::sys::{self, BpfInstruction, Fork};
use crate::{
    processor,
    protocol::wire,
    roles::init,
    setup::{identity, seccomp},
};

/// Clones PID 1 into new namespaces and, on cgroup v2, into a cgroup. `prepare` runs first in the
/// child, after the id mapping is written, and returns the seccomp filter.
pub(crate) fn clone_init(
    identity: &Identity,
    control: &OwnedFd,
    cgroup: Option<BorrowedFd<'_>>,
    network_setup: NetworkSetup,
    prepare: impl FnOnce() -> Option<Vec<BpfInstruction>>,
) -> Result<Pid, Failure> {
    let fail = |errno| Failure::new(Step::MakeNamespaces, "", errno);
    let (mapped, map) = pipe_with(PipeFlags::CLOEXEC).map_err(fail)?;
    match sys::clone_into_namespaces(init::NAMESPACES, cgroup).map_err(fail)? {
        Fork::Child => {
            // A box must not inherit descriptors of its parent, not even in PID 1.
            sys::close_all_but(&[control.as_fd(), mapped.as_fd()]);
            // The pipe is closed if the parent ended before it wrote the mapping.
            if rustix::io::read(&mapped, &mut [0; 1]) != Ok(1) {
                sys::exit_now(1);
            }
            drop(mapped);
            match prepare() {
                Some(filter) => init::main(control, &filter, network_setup),
                None => sys::exit_now(1),
            }
        }
        Fork::Parent(pid) => {
            if network_setup == NetworkSetup::Inline {
                processor::move_aside(pid);
            }
            let done = identity::map(pid, identity).and_then(|()| rustix::io::write(&map, &[1]).map_err(fail));
            if done.is_err() {
                // The child is not reaped yet, so its PID cannot have been reused.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            }
            done.map(|_| pid)
        }
    }
}

/// Clones PID 1 from this program itself and returns our end of its control socket and its PID.
/// Fails if the program has other threads: locks that they hold would stay locked in the copy.
pub fn spawn_init(identity: &Identity) -> Result<(OwnedFd, Pid), Failure> {
    let fail = |errno| Failure::new(Step::MakeNamespaces, "", errno);
    if thread_count().map_err(fail)? != 1 {
        return Err(fail(Errno::BUSY));
    }
    identity::leave_groups().map_err(fail)?;
    let (ours, theirs) = wire::pair().map_err(fail)?;
    let pid = clone_init(identity, &theirs, None, NetworkSetup::Inline, || {
        sys::wipe_arguments(crate::PROCESS_NAME);
        // The box must not hold the program's stdout open: a reader of it would wait until the box
        // ends.
        redirect_to_null(&[0, 1, 2]).ok()?;
        apply_defaults();
        Some(seccomp::program())
    })?;
    Ok((ours, pid))
}

/// Settings of the jail's processes that every box inherits.
pub(crate) fn apply_defaults() {
    let _ = rustix::thread::set_name(c"ringwall-jail");
    // Leaves the caller's process group: Ctrl-C at the caller's terminal is for the executor only.
    let _ = rustix::process::setsid();
    sys::reset_signals();
    give_up_oom_protection();
    raise_open_files();
}

/// Raises RLIMIT_NOFILE of this process to the hard limit. A process can send descriptors only
/// while its user has fewer unreceived ones than this. The command of a box gets the limit of its
/// plan.
pub fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// A server may be protected from the OOM killer (negative oom_score_adj); boxes must not be.
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

/// Number of threads: link count of the task directory, minus 2.
fn thread_count() -> rustix::io::Result<u64> {
    Ok(rustix::fs::stat(c"/proc/self/task")?.st_nlink.saturating_sub(2))
}

/// Replaces standard streams by /dev/null, so that no descriptor received later gets their numbers.
pub(crate) fn redirect_to_null(numbers: &[i32]) -> rustix::io::Result<()> {
    let flags = OFlags::RDWR;
    let null = rustix::fs::open(c"/dev/null", flags, Mode::empty())?;
    numbers.iter().try_for_each(|number| sys::dup_to(null.as_fd(), *number))
}
