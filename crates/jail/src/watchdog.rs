//! Memory without a cgroup: PID 1 adds up what its box holds and says when it is too much.
//!
//! It counts private pages of every process and what the box's memory file systems store. It looks twenty
//! times a second, so a box can overshoot in between, and it cannot see memory that lives only behind
//! descriptors; the box's report says that this limit is partial.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::time::Timespec;

use crate::plan::Watchdog;

const INTERVAL_NANOSECONDS: i64 = 50_000_000;

/// The count and its limit.
pub(crate) struct Meter {
    limit: u64,
    page: u64,
    processes: Option<OwnedFd>,
    file_systems: Vec<CString>,
}

impl Meter {
    pub(crate) fn open(plan: &Watchdog) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Meter {
            limit: plan.memory_bytes,
            page: rustix::param::page_size() as u64,
            processes: rustix::fs::open(c"/proc", flags, Mode::empty()).ok(),
            file_systems: plan.file_systems.clone(),
        }
    }

    pub(crate) fn interval(&self) -> Timespec {
        Timespec { tv_sec: 0, tv_nsec: INTERVAL_NANOSECONDS }
    }

    /// Whether the box holds more than it may. What cannot be read counts as nothing: a process that has just
    /// ended must not end the box.
    pub(crate) fn is_over(&mut self) -> bool {
        let stored: u64 = self.file_systems.iter().map(stored).sum();
        stored + self.resident() > self.limit
    }

    fn resident(&self) -> u64 {
        let Some(processes) = &self.processes else { return 0 };
        let Ok(entries) = Dir::read_from(processes) else { return 0 };
        entries
            .filter_map(std::result::Result::ok)
            .filter(|entry| entry.file_name().to_bytes().first().is_some_and(u8::is_ascii_digit))
            .filter_map(|entry| {
                let path = CString::new([entry.file_name().to_bytes(), b"/statm"].concat()).ok()?;
                let file = rustix::fs::openat(processes.as_fd(), path, OFlags::RDONLY, Mode::empty()).ok()?;
                let mut buffer = [0; 128];
                let count = rustix::io::read(&file, &mut buffer).ok()?;
                private_pages(&buffer[..count])
            })
            .sum::<u64>()
            * self.page
    }
}

/// Resident pages that are not shared: the second field of statm less the third.
fn private_pages(statm: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(statm).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(1);
    let resident: u64 = fields.next()?.parse().ok()?;
    let shared: u64 = fields.next()?.parse().ok()?;
    Some(resident.saturating_sub(shared))
}

fn stored(path: &CString) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |status| (status.f_blocks - status.f_bfree) * status.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::private_pages;

    #[test]
    fn private_pages_are_resident_less_shared() {
        assert_eq!(private_pages(b"1000 300 100 5 0 200 0\n"), Some(200));
        assert_eq!(private_pages(b"1000 100 300 5 0 200 0\n"), Some(0));
        assert_eq!(private_pages(b""), None);
    }
}
