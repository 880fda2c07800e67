//! Somebody who removes a box's cgroups should the program that made them be killed.
//!
//! For a program that bears its one box itself and so has no spawner. It shares that program's memory (a copy would
//! cost more than the rest of it), reads two words of it, makes system calls only, and sleeps until the
//! program's end of a socket is closed, by its end or otherwise.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::AtFlags;
use rustix::io::{Errno, Result};
use rustix::process::{Pid, WaitOptions};
use rustix::time::Timespec;

use crate::{sys, wire};

const REMOVALS: u32 = 200;
const MILLISECOND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// What it knows. There is one in a program, because there is one box.
static CHARGE: OnceLock<(OwnedFd, Vec<CString>)> = OnceLock::new();

/// Dropping it, after the box has ended, removes the directories, ends it and waits for that.
#[derive(Debug)]
pub struct Undertaker {
    socket: Option<OwnedFd>,
    process: Pid,
}

/// Keeps these directories in mind from now on. They need not exist yet.
pub fn keep_watch(directories: Vec<CString>) -> Result<Undertaker> {
    let (ours, theirs) = wire::pair()?;
    CHARGE.set((theirs, directories)).map_err(|_| Errno::BUSY)?;
    let process = sys::start_helper(watch, sys::Share::MemoryAlone)?;
    Ok(Undertaker { socket: Some(ours), process })
}

fn watch() {
    let Some((socket, directories)) = CHARGE.get() else { return };
    sys::close_everything_but(socket.as_fd());
    // Out of reach of a Ctrl-C, which is for the program to handle.
    let _ = rustix::process::setsid();
    wait_until_closed(socket.as_fd());
    remove(directories);
}

/// The kernel lets go of the last task a moment after it was reaped.
fn remove(directories: &[CString]) {
    for directory in directories {
        for _ in 0..REMOVALS {
            match rustix::fs::unlinkat(rustix::fs::CWD, directory, AtFlags::REMOVEDIR) {
                Err(Errno::BUSY) => drop(rustix::thread::nanosleep(&MILLISECOND)),
                _ => break,
            }
        }
    }
}

fn wait_until_closed(socket: BorrowedFd<'_>) {
    loop {
        let mut events = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        match rustix::event::poll(&mut events, None) {
            Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        // Ourselves, because it may have been killed.
        if let Some((_, directories)) = CHARGE.get() {
            remove(directories);
        }
        drop(self.socket.take());
        while matches!(rustix::process::waitpid(Some(self.process), WaitOptions::empty()), Err(Errno::INTR)) {}
    }
}
