//! Pauses and resumes a box with the cgroup freezer, which stops all its processes.
//!
//! On cgroup v1 a frozen process cannot die, so a paused box must be thawed to be killed.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use ringwall_jail::cgroups::{FREEZER, FROZEN, THAWED};
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

use crate::cgroup::groups::open_at;

const FREEZE: &CStr = c"cgroup.freeze";
const EVENTS: &CStr = c"cgroup.events";
/// Freezing waits up to 2 s (2,000 checks) for processes in uninterruptible system calls.
const MAX_CHECKS: u32 = 2000;
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Pause or resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    Begin,
    End,
}

/// The control files of one group.
#[derive(Debug)]
pub(crate) enum Freezer {
    V1(OwnedFd),
    V2 { freeze: OwnedFd, events: OwnedFd },
}

impl Freezer {
    /// `None` for a group without a freezer.
    pub(crate) fn open(group: BorrowedFd<'_>) -> Option<Self> {
        if let Ok(state) = open_at(group, FREEZER, OFlags::RDWR) {
            return Some(Freezer::V1(state));
        }
        let freeze = open_at(group, FREEZE, OFlags::WRONLY).ok()?;
        Some(Freezer::V2 { freeze, events: open_at(group, EVENTS, OFlags::RDONLY).ok()? })
    }

    /// Returns when every process of the box is frozen.
    pub(crate) async fn freeze(&self) -> Result<()> {
        for _ in 0..MAX_CHECKS {
            // On version 1 a process that is just being forked may escape the first write, so it is
            // repeated.
            let is_frozen = match self {
                Freezer::V1(state) => {
                    rustix::io::pwrite(state, FROZEN, 0)?;
                    read(state)?.trim_ascii() == FROZEN
                }
                Freezer::V2 { freeze, events } => {
                    rustix::io::pwrite(freeze, b"1", 0)?;
                    read(events)?.split(|byte| *byte == b'\n').any(|line| line == b"frozen 1")
                }
            };
            if is_frozen {
                return Ok(());
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        self.thaw()?;
        Err(Errno::TIMEDOUT)
    }

    pub(crate) fn thaw(&self) -> Result<()> {
        match self {
            Freezer::V1(state) => rustix::io::pwrite(state, THAWED, 0),
            Freezer::V2 { freeze, .. } => rustix::io::pwrite(freeze, b"0", 0),
        }
        .map(drop)
    }
}

fn read(file: &OwnedFd) -> Result<Vec<u8>> {
    let mut text = vec![0; 256];
    let count = rustix::io::pread(file, &mut text, 0)?;
    text.truncate(count);
    Ok(text)
}
