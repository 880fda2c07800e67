//! On which processor a process that was just born begins.
//!
//! Two that are to work side by side often do not. The kernel looks for an idle processor, but in a virtual machine it
//! takes one that is halted for one that the host has given to somebody else, and so leaves the child to wait on the
//! parent's until the parent sleeps: 0.4 ms of `ringwall run`. Where a process runs is its speed alone, never its safety.

use rustix::process::Pid;
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Sends a child of ours to another processor than the one we are on, if there is one; from there it may go anywhere.
pub(crate) fn move_aside(child: Pid) {
    let Ok(all) = sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(sched_getcpu());
    if others.count() > 0 && sched_setaffinity(Some(child), &others).is_ok() {
        let _ = sched_setaffinity(Some(child), &all);
    }
}
