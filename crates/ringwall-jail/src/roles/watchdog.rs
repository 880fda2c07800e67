//! Enforces a memory limit where the kernel does not: PID 1 adds up usage and ends the box above
//! it.
//!
//! With a memory cgroup only socket queues count, up to half of the limit in addition, checked 4
//! times a second.
//!
//! Without one everything counts: anonymous and shared pages of all processes, System V segments
//! without users, contents of the box's tmpfs mounts, open memfds, socket queues. This is checked
//! 20 times a second, memfds and sockets 4 times a second. A box can exceed the limit between
//! checks, and a process can hide its descriptors, so the box reports the limit as partial.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::protocol::plan::Watchdog;
use crate::protocol::report::{Protection, ProtectionName, ProtectionState};
use crate::setup::socket_memory::SocketMemory;

const INTERVAL_NANOSECONDS: i64 = 50_000_000;
const SOCKETS_INTERVAL_NANOSECONDS: i64 = 250_000_000;
/// Open descriptors and sockets can be many, so only every fifth check looks at them.
const CHECKS_PER_SCAN: u32 = 5;
/// Socket queues may use a half of the memory limit in addition to it.
const SOCKETS_DIVISOR: u64 = 2;
const BLOCK: u64 = 512;
const KIB: u64 = 1024;

/// Memory use of the box and its limit.
pub(crate) struct MemoryMeter {
    scope: MeterScope,
    limit: u64,
    sockets: SocketMemory,
    processes: Option<OwnedFd>,
    file_systems: Vec<CString>,
    checks: u32,
    checked_at: Timespec,
    memory_files: u64,
    socket_queues: u64,
}

/// What is added up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeterScope {
    Everything,
    /// A memory cgroup limits the rest.
    SocketsOnly,
}

impl MemoryMeter {
    /// `socket_counter` is the cgroup v1 counter of TCP and UDP queues, if there is one.
    pub(crate) fn new(plan: &Watchdog, protections: &[Protection], socket_counter: Option<OwnedFd>) -> Self {
        let counts_itself = |protection: &Protection| {
            protection.name == ProtectionName::MemoryLimit && protection.state == ProtectionState::Enforced
        };
        let (scope, limit) = if protections.iter().any(counts_itself) {
            (MeterScope::SocketsOnly, plan.memory_bytes / SOCKETS_DIVISOR)
        } else {
            (MeterScope::Everything, plan.memory_bytes)
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        MemoryMeter {
            scope,
            limit,
            sockets: SocketMemory::new(socket_counter),
            processes: rustix::fs::open(c"/proc", flags, Mode::empty()).ok(),
            file_systems: plan.file_systems.clone(),
            checks: 0,
            checked_at: Timespec { tv_sec: 0, tv_nsec: 0 },
            memory_files: 0,
            socket_queues: 0,
        }
    }

    pub(crate) fn scope(&self) -> MeterScope {
        self.scope
    }

    pub(crate) fn interval(&self) -> Timespec {
        let tv_nsec = match self.scope {
            MeterScope::Everything => INTERVAL_NANOSECONDS,
            MeterScope::SocketsOnly => SOCKETS_INTERVAL_NANOSECONDS,
        };
        Timespec { tv_sec: 0, tv_nsec }
    }

    /// Checks at most once per interval, so that a box that wakes PID 1 constantly does not make it
    /// check constantly.
    pub(crate) fn is_over_now(&mut self) -> bool {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let since = (now.tv_sec - self.checked_at.tv_sec) * 1_000_000_000 + (now.tv_nsec - self.checked_at.tv_nsec);
        if since < self.interval().tv_nsec {
            return false;
        }
        self.checked_at = now;
        match (self.scope, &self.processes) {
            (MeterScope::SocketsOnly, Some(processes)) => self.sockets.beside_cgroup(processes.as_fd()) > self.limit,
            (MeterScope::SocketsOnly, None) => true,
            (MeterScope::Everything, _) => self.is_over(),
        }
    }

    /// Unreadable values count as 0: a process that has just ended must not end the box.
    fn is_over(&mut self) -> bool {
        let Some(processes) = &self.processes else { return true };
        let processes = processes.as_fd();
        let pids = pids(processes);
        // PID 1 is always listed. If it is not, /proc is hidden or unreadable, and the box is
        // ended.
        if read(processes, c"1", "status").is_none() || !pids.iter().any(|pid| pid.as_bytes() == b"1") {
            return true;
        }
        let pids: Vec<CString> = pids.into_iter().map(|pid| visible(processes, pid)).collect();
        if self.checks.is_multiple_of(CHECKS_PER_SCAN) {
            self.memory_files = memory_files(processes, &pids);
            self.socket_queues = self.sockets.without_cgroup(processes);
        }
        self.checks = self.checks.wrapping_add(1);
        let stored: u64 = self.file_systems.iter().map(|path| stored(path)).sum();
        let segments = unattached_segments(processes);
        // A memfd that is mapped also counts as shared pages of processes. Use the larger of both
        // sums, so that no box is ended for memory that was counted twice.
        let kept = stored + self.socket_queues;
        let total = |held: Held| kept + held.own + (held.shared + segments).max(self.memory_files);
        // RSS counts a shared page once per process. Before the box is ended, the exact
        // proportional set size is summed, which takes the kernel much longer.
        total(pids.iter().map(|pid| session_box(processes, pid)).sum()) > self.limit
            && total(pids.iter().map(|pid| exactly_resident(processes, pid)).sum()) > self.limit
    }
}

/// Private and shared memory of processes, in bytes.
#[derive(Default, Clone, Copy)]
struct Held {
    own: u64,
    shared: u64,
}

impl std::iter::Sum for Held {
    fn sum<I: Iterator<Item = Held>>(all: I) -> Self {
        all.fold(Held::default(), |sum, held| Held { own: sum.own + held.own, shared: sum.shared + held.shared })
    }
}

fn pids(processes: BorrowedFd<'_>) -> Vec<CString> {
    let Ok(entries) = Dir::read_from(processes) else { return Vec::new() };
    let is_pid = |name: &CStr| name.to_bytes().first().is_some_and(u8::is_ascii_digit);
    entries.flatten().map(|entry| entry.file_name().to_owned()).filter(|name| is_pid(name)).collect()
}

/// If the main thread of a process has ended, memory is shown by its other threads only.
fn visible(processes: BorrowedFd<'_>, pid: CString) -> CString {
    let shows = |path: &CStr| read(processes, path, "status").is_some_and(|status| status.contains("RssAnon:"));
    if shows(&pid) {
        return pid;
    }
    let threads = || -> Option<CString> {
        let path = CString::new([pid.as_bytes(), b"/task"].concat()).ok()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(processes, &path, flags, Mode::empty()).ok()?;
        let mut threads = Dir::read_from(&directory).ok()?.flatten().filter_map(|entry| {
            let name = entry.file_name().to_bytes();
            let thread = CString::new([path.as_bytes(), b"/", name].concat()).ok()?;
            name.first().is_some_and(u8::is_ascii_digit).then_some(thread)
        });
        threads.find(|thread| shows(thread))
    };
    threads().unwrap_or(pid)
}

/// Includes page tables: a process can make them large without mapping many pages.
fn session_box(processes: BorrowedFd<'_>, pid: &CStr) -> Held {
    let status = read(processes, pid, "status").unwrap_or_default();
    let own = kilobytes(&status, "RssAnon:") + kilobytes(&status, "VmPTE:");
    Held { own, shared: kilobytes(&status, "RssShmem:") }
}

fn exactly_resident(processes: BorrowedFd<'_>, pid: &CStr) -> Held {
    match read(processes, pid, "smaps_rollup") {
        Some(smaps) if !smaps.is_empty() => {
            let tables = read(processes, pid, "status").map_or(0, |status| kilobytes(&status, "VmPTE:"));
            Held { own: kilobytes(&smaps, "Pss_Anon:") + tables, shared: kilobytes(&smaps, "Pss_Shmem:") }
        }
        _ => session_box(processes, pid),
    }
}

/// System V segments that no process has attached. Attached ones are in the processes' shared
/// memory.
fn unattached_segments(processes: BorrowedFd<'_>) -> u64 {
    read(processes, c"sysvipc", "shm").map_or(0, |table| segments_without_users(&table))
}

/// Blocks of all memfds that processes have open, each counted once (by inode).
fn memory_files(processes: BorrowedFd<'_>, pids: &[CString]) -> u64 {
    let mut sizes = BTreeMap::new();
    for pid in pids {
        let Ok(path) = CString::new([pid.as_bytes(), b"/fd"].concat()) else { continue };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(descriptors) = rustix::fs::openat(processes, &path, flags, Mode::empty()) else { continue };
        let Ok(entries) = Dir::read_from(&descriptors) else { continue };
        for entry in entries.flatten() {
            let is_memory = rustix::fs::readlinkat(&descriptors, entry.file_name(), Vec::new())
                .is_ok_and(|target| target.as_bytes().starts_with(b"/memfd:"));
            if is_memory && let Ok(status) = rustix::fs::statat(&descriptors, entry.file_name(), AtFlags::empty()) {
                sizes.insert(status.st_ino, status.st_blocks.unsigned_abs() * BLOCK);
            }
        }
    }
    sizes.values().sum()
}

fn stored(path: &CStr) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |status| (status.f_blocks - status.f_bfree) * status.f_frsize)
}

/// Content of a file in a directory of /proc.
pub(crate) fn read(processes: BorrowedFd<'_>, directory: &CStr, file: &str) -> Option<String> {
    let path = CString::new([directory.to_bytes(), b"/", file.as_bytes()].concat()).ok()?;
    let file = rustix::fs::openat(processes, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(count) => text.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Value of a line of the form `name  N kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse::<u64>().ok();
    text.lines().find_map(value).unwrap_or(0) * KIB
}

/// Sums column 15 (resident bytes) where column 7 (attached processes) is 0; the first line is a
/// header.
fn segments_without_users(table: &str) -> u64 {
    let unused = |line: &str| -> Option<u64> {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        (*columns.get(6)? == "0").then(|| columns.get(14)?.parse().ok()).flatten()
    };
    table.lines().skip(1).filter_map(unused).sum()
}

#[cfg(test)]
mod tests {
    use super::{kilobytes, segments_without_users};

    #[test]
    fn kilobytes_reads_the_named_line() {
        let status = "Name:\tx\nRssAnon:\t     100 kB\nRssFile:\t  7 kB\nRssShmem:\t 20 kB\n";
        assert_eq!(kilobytes(status, "RssAnon:"), 100 * 1024);
        assert_eq!(kilobytes(status, "RssShmem:"), 20 * 1024);
        assert_eq!(kilobytes(status, "Pss_Anon:"), 0);
    }

    #[test]
    fn only_unattached_segments_count() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
                     0          0   600  1000  5  5      0  1000  1000  1000  1000  0  0  1  4096  0\n\
                     0          1   600  1000  5  5      2  1000  1000  1000  1000  0  0  1  8192  0\n";
        assert_eq!(segments_without_users(table), 4096);
    }
}
