//! A helper process that removes a box's cgroups when the box has ended, even if the program that
//! made them was killed.
//!
//! For `ringwall run` where it clones PID 1 itself and so has no spawner. The helper shares the
//! program's memory, because a copy would cost more than everything else that it does. It reads
//! only [`TARGET`], makes only system calls, and sleeps until PID 1 has ended.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::AtFlags;
use rustix::io::{Errno, Result};
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use rustix::time::Timespec;

use crate::sys::{self, Share};

/// A cgroup stays busy for a moment after its last process has ended.
const MAX_ATTEMPTS: u32 = 2000;
const RETRY_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// The box whose end the helper waits for. A program has at most one.
static TARGET: OnceLock<(OwnedFd, Vec<CString>)> = OnceLock::new();

/// Dropping it waits until the directories are removed. Drop it after the box has ended.
#[derive(Debug)]
pub struct CgroupReaper {
    process: Pid,
}

impl CgroupReaper {
    /// Starts the helper for the box with this PID 1, a child of this process. The directories need not
    /// exist yet.
    pub fn start(init: Pid, directories: Vec<CString>) -> Result<Self> {
        let handle = rustix::process::pidfd_open(init, PidfdFlags::empty())?;
        TARGET.set((handle, directories)).map_err(|_| Errno::BUSY)?;
        Ok(Self { process: sys::start_helper(run, Share::MemoryAlone)? })
    }
}

fn run() {
    let Some((init, directories)) = TARGET.get() else { return };
    sys::close_all_in_helper(init.as_fd());
    // Keeps a Ctrl-C at the terminal from killing the helper.
    let _ = rustix::process::setsid();
    wait_for_exit(init.as_fd());
    remove(directories);
}

fn wait_for_exit(init: BorrowedFd<'_>) {
    let mut events = [PollFd::from_borrowed_fd(init, PollFlags::IN)];
    while rustix::event::poll(&mut events, None) == Err(Errno::INTR) {}
}

fn remove(directories: &[CString]) {
    for directory in directories {
        for _ in 0..MAX_ATTEMPTS {
            match rustix::fs::unlinkat(rustix::fs::CWD, directory, AtFlags::REMOVEDIR) {
                Err(Errno::BUSY) => drop(rustix::thread::nanosleep(&RETRY_INTERVAL)),
                _ => break,
            }
        }
    }
}

impl Drop for CgroupReaper {
    fn drop(&mut self) {
        while matches!(rustix::process::waitpid(Some(self.process), WaitOptions::empty()), Err(Errno::INTR)) {}
        // The helper may have been killed, or may have run before the directories were created.
        if let Some((_, directories)) = TARGET.get() {
            remove(directories);
        }
    }
}
