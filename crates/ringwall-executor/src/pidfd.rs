//! Handles to processes (pidfds). The handle of a PID 1 is readable only when every process of its namespace has ended.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

/// Between two checks of a process that was killed and ends soon.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Handle to PID 1 of a box, set when the box has reported its start.
pub(crate) type Init = Arc<OnceLock<OwnedFd>>;

/// True if a process has ended and, if it is the PID 1 of a namespace, every process in that.
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&at_once)) == Ok(1)
}

/// Waits until [`has_ended`] is true.
pub(crate) async fn ended(process: &OwnedFd) {
    while !has_ended(process) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// True if every process of a box has ended. A box whose PID 1 was never reported has no other process.
pub(crate) fn is_over(init: &Init) -> bool {
    init.get().is_none_or(has_ended)
}

/// The number of a process in the namespace of this process.
pub(crate) fn process_id(handle: &OwnedFd) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}
