//! Counts the epoll watches and unreceived descriptors of a box, from outside the box.
//!
//! A process can hide its descriptors from PID 1 with `PR_SET_DUMPABLE`, but not from here: the user
//! who made the box's user namespace may inspect every process that was executed in it, and with
//! that right may read `fdinfo` (but not `fd`, with the links). `fdinfo` of an epoll instance has a
//! line `tfd:` per watch; that of a Unix socket has the number of unreceived descriptors
//! (`scm_fds:`). An epoll instance among the unreceived descriptors is in no process and cannot be
//! read.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;

/// Descriptors that one call reads at most, which takes about 0.25 s.
const MAX_DESCRIPTORS: u32 = 50_000;
/// Bytes read of one `fdinfo`: more than 90,000 watches, which is above every cap.
const MAX_FDINFO: usize = 8 << 20;
const PID_1: u32 = 1;

/// The counts of one box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) watches: u64,
    /// Descriptors that were sent over Unix sockets and not received.
    pub(super) passed: u64,
    /// A descriptor table could not be read, or there were too many descriptors.
    pub(super) is_incomplete: bool,
}

/// The descriptor tables to read. The threads of a process share one unless they were made to have
/// their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    OfProcesses,
    /// A table that threads share counts once per thread.
    OfThreads,
}

/// An unfinished scan of a box with more than [`MAX_DESCRIPTORS`] descriptors, which takes several
/// calls of [`held`].
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The PID and thread id in the box whose table is read next; 0 at the beginning.
    next: (u32, u32),
    /// The counts of the earlier calls.
    held: Held,
}

/// Counts until `enough` watches were counted. `init` is the host PID of the box's PID 1. A call
/// that would read more than [`MAX_DESCRIPTORS`] stops before the next descriptor table, stores its
/// position in `scan`, and returns the counts of all calls so far.
pub(super) fn held(init: u32, tables: Tables, enough: u64, scan: &mut Scan) -> Held {
    let Scan { next, held } = std::mem::take(scan);
    let mut count = Count { held, descriptors: 0, limit: MAX_DESCRIPTORS, enough };
    let processes = match processes(init) {
        Processes::Proc(processes) => processes,
        Processes::None => return count.held,
        Processes::Unreadable => return Held { is_incomplete: true, ..count.held },
    };
    if let Some(next) = count.processes(&processes, tables, next) {
        count.held.is_incomplete = true;
        *scan = Scan { next, held: count.held };
    }
    count.held
}

/// The processes of a box.
enum Processes {
    /// The box's own `/proc`, which lists no processes of other boxes.
    Proc(OwnedFd),
    None,
    /// There are processes, and none can be inspected.
    Unreadable,
}

/// Opens `/proc` through a child of PID 1. PID 1 itself is a fork of our process, which cannot be
/// inspected; its children were executed in the box.
fn processes(init: u32) -> Processes {
    let Ok(children) = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")) else {
        return Processes::Unreadable;
    };
    let mut children = children.split_ascii_whitespace().peekable();
    if children.peek().is_none() {
        return Processes::None;
    }
    let proc = children.find_map(|child| {
        // After the end of its first thread only the other threads of a process have a root directory.
        let threads = || open_directory(rustix::fs::CWD, &path(&format!("/proc/{child}/task"))?).ok();
        let of_thread = |thread: CString| own_proc(&format!("/proc/{child}/task/{}", number(&thread)));
        own_proc(&format!("/proc/{child}")).or_else(|| names(&threads()?).into_iter().find_map(of_thread))
    });
    proc.map_or(Processes::Unreadable, Processes::Proc)
}

/// The `/proc` that a task sees.
fn own_proc(task: &str) -> Option<OwnedFd> {
    let found = open_directory(rustix::fs::CWD, &path(&format!("{task}/root/proc"))?).ok()?;
    (rustix::fs::fstatfs(&found).ok()?.f_type == PROC_SUPER_MAGIC).then_some(found)
}

fn path(text: &str) -> Option<CString> {
    CString::new(text).ok()
}

struct Count {
    held: Held,
    descriptors: u32,
    /// Maximum of `descriptors` in one call.
    limit: u32,
    enough: u64,
}

/// The result of reading one descriptor table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    Empty,
    Counted,
    /// Not read, because this call has reached its limit.
    Postponed,
}

impl Count {
    /// Returns the PID and thread id of the first postponed table.
    fn processes(&mut self, processes: &OwnedFd, tables: Tables, next: (u32, u32)) -> Option<(u32, u32)> {
        for pid in names(processes) {
            let process = number(&pid);
            if process == PID_1 || process < next.0 {
                continue;
            }
            let first_thread = if process == next.0 { next.1 } else { 0 };
            if tables == Tables::OfProcesses && first_thread == 0 {
                match self.table(processes.as_fd(), &pid) {
                    Table::Counted => continue,
                    Table::Postponed => return Some((process, 0)),
                    // After the end of the first thread the table is empty here; the other threads still
                    // have it.
                    Table::Empty => {}
                }
            }
            let Ok(threads) = open_directory(processes.as_fd(), &join(&pid, b"task")) else { continue };
            for thread in names(&threads) {
                let id = number(&thread);
                if id >= first_thread && self.table(threads.as_fd(), &thread) == Table::Postponed {
                    return Some((process, id));
                }
            }
        }
        None
    }

    /// Adds the counts of one descriptor table.
    fn table(&mut self, parent: BorrowedFd<'_>, task: &CStr) -> Table {
        if self.held.watches > self.enough {
            return Table::Counted;
        }
        let directory = match open_directory(parent, &join(task, b"fdinfo")) {
            Ok(directory) => directory,
            // The task has ended.
            Err(Errno::NOENT | Errno::SRCH) => return Table::Counted,
            Err(_) => {
                self.held.is_incomplete = true;
                return Table::Counted;
            }
        };
        let names = names(&directory);
        let length = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if self.descriptors > 0 && self.descriptors.saturating_add(length) > self.limit {
            return Table::Postponed;
        }
        // Only possible if the box's RLIMIT_NOFILE is above the usual 4,096.
        self.held.is_incomplete |= length > self.limit;
        for name in names.iter().take(self.limit as usize) {
            if self.held.watches > self.enough {
                break;
            }
            self.descriptors += 1;
            // The descriptor was closed meanwhile, or its process has ended.
            let Ok(text) = read(directory.as_fd(), name) else { continue };
            self.held.add(&text);
        }
        if names.is_empty() { Table::Empty } else { Table::Counted }
    }
}

impl Held {
    fn add(&mut self, fdinfo: &[u8]) {
        for line in fdinfo.split(|byte| *byte == b'\n') {
            if line.starts_with(b"tfd:") {
                self.watches += 1;
            } else if let Some(number) = line.strip_prefix(b"scm_fds:") {
                let number = std::str::from_utf8(number).ok().and_then(|number| number.trim().parse::<u64>().ok());
                self.passed += number.unwrap_or(0);
            }
        }
    }
}

/// Entries whose names are numbers, in ascending order.
fn names(directory: &OwnedFd) -> Vec<CString> {
    let Ok(entries) = Dir::read_from(directory) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_owned());
    let mut names: Vec<_> = names.filter(|name| name.as_bytes().first().is_some_and(u8::is_ascii_digit)).collect();
    names.sort_by_key(|name| number(name));
    names
}

fn number(name: &CStr) -> u32 {
    name.to_str().ok().and_then(|name| name.parse().ok()).unwrap_or(0)
}

fn join(parent: &CStr, name: &[u8]) -> CString {
    CString::new([parent.to_bytes(), b"/", name].concat()).unwrap_or_default()
}

fn open_directory(parent: BorrowedFd<'_>, path: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, path, flags, Mode::empty())
}

fn read(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Vec<u8>> {
    let file = rustix::fs::openat(parent, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = vec![0; 4096];
    let mut length = 0;
    loop {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut text[length..]))?;
        length += count;
        if count == 0 || length >= MAX_FDINFO {
            text.truncate(length);
            return Ok(text);
        }
        if text.len() - length < 1024 {
            text.resize(text.len() * 2, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fdinfo_lines_are_counted() {
        let mut held = Held::default();
        held.add(b"pos:\t0\nflags:\t02000002\ntfd:       52 events:       19 data: 0  pos:0 ino:40e sdev:10\ntfd: 5\n");
        held.add(b"pos:\t0\nflags:\t02\nscm_fds: 7\n");
        held.add(b"pos:\t0\neventfd-count: 3\n");
        assert_eq!(held, Held { watches: 2, passed: 7, is_incomplete: false });
    }

    #[test]
    fn descriptors_beyond_limit_are_counted_by_next_calls() {
        let proc = tempfile::tempdir().unwrap();
        // The first thread of process 7 has ended; its other threads have tables of their own.
        for (task, descriptors) in [("2", 3), ("5", 3), ("7", 0), ("7/task/7", 0), ("7/task/8", 2), ("7/task/9", 2)] {
            let fdinfo = proc.path().join(task).join("fdinfo");
            std::fs::create_dir_all(&fdinfo).unwrap();
            for descriptor in 0..descriptors {
                std::fs::write(fdinfo.join(descriptor.to_string()), "pos:\t0\ntfd: 5\n").unwrap();
            }
        }
        let processes = OwnedFd::from(std::fs::File::open(proc.path()).unwrap());
        for limit in 3..12 {
            let (mut next, mut held, mut calls) = ((0, 0), Held::default(), 0);
            loop {
                calls += 1;
                let mut count = Count { held, descriptors: 0, limit, enough: 100 };
                let left = count.processes(&processes, Tables::OfProcesses, next);
                held = count.held;
                match left {
                    Some(left) if calls < 20 => next = left,
                    _ => break,
                }
            }
            assert_eq!(held.watches, 10, "limit {limit}, {calls} calls");
        }
    }
}
