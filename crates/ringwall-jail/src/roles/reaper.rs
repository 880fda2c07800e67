//! Somebody who removes a box's cgroups when it has ended, also should the program that made them be killed.
//!
//! For a program that bears its one box itself and so has no spawner. It shares that program's memory (a copy would
//! cost more than the rest of it), reads two words of it, makes system calls only, and sleeps until PID 1 is gone,
//! which dies with the program.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::AtFlags;
use rustix::io::{Errno, Result};
use rustix::process::{Pid, PidfdFlags, WaitOptions};
use rustix::time::Timespec;

use crate::sys::{self, Share};

/// The kernel lets go of the last task a moment after it has ended.
const REMOVALS: u32 = 2000;
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// What it knows. There is one in a program, because there is one box.
static CHARGE: OnceLock<(OwnedFd, Vec<CString>)> = OnceLock::new();

/// Dropping it, after the box has ended, waits until the directories are gone.
#[derive(Debug)]
pub struct Undertaker {
    process: Pid,
}

/// Keeps these directories of the box with this PID 1, a child of ours, in mind. They need not exist yet.
pub fn keep_watch(init: Pid, directories: Vec<CString>) -> Result<Undertaker> {
    let handle = rustix::process::pidfd_open(init, PidfdFlags::empty())?;
    CHARGE.set((handle, directories)).map_err(|_| Errno::BUSY)?;
    Ok(Undertaker { process: sys::start_helper(watch, Share::MemoryAlone)? })
}

fn watch() {
    let Some((init, directories)) = CHARGE.get() else { return };
    sys::close_everything_but(init.as_fd());
    // Out of reach of a Ctrl-C, which is for the program to handle.
    let _ = rustix::process::setsid();
    wait_for_the_end(init.as_fd());
    remove(directories);
}

fn wait_for_the_end(init: BorrowedFd<'_>) {
    let mut events = [PollFd::from_borrowed_fd(init, PollFlags::IN)];
    while rustix::event::poll(&mut events, None) == Err(Errno::INTR) {}
}

fn remove(directories: &[CString]) {
    for directory in directories {
        for _ in 0..REMOVALS {
            match rustix::fs::unlinkat(rustix::fs::CWD, directory, AtFlags::REMOVEDIR) {
                Err(Errno::BUSY) => drop(rustix::thread::nanosleep(&MOMENT)),
                _ => break,
            }
        }
    }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        while matches!(rustix::process::waitpid(Some(self.process), WaitOptions::empty()), Err(Errno::INTR)) {}
        // It may have been killed, or the box have ended before there was anything to remove.
        if let Some((_, directories)) = CHARGE.get() {
            remove(directories);
        }
    }
}
