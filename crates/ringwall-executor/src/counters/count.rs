//! What the processes of a box hold of shared counters, read from outside the box.
//!
//! A process can hide its descriptors from PID 1 with `PR_SET_DUMPABLE`, but not from here: the user who made the
//! box's user namespace may look into everything that was executed in it, and `fdinfo` is open to whoever may look
//! (`fd`, with the links, is not). `fdinfo` of an epoll instance has a line `tfd:` per watch; that of a Unix socket
//! says how many descriptors lie unreceived in it (`scm_fds:`). An epoll instance among those is in no process, and
//! cannot be seen at all.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;

use crate::kernel_file;

/// Descriptors read of one box at most, about a quarter of a second's work.
const MAX_DESCRIPTORS: u32 = 50_000;
/// Bytes read of one `fdinfo`: room for more than 90,000 watches, which is over every cap.
const MAX_FDINFO: usize = 8 << 20;
const PID_1: u32 = 1;

/// What a box was seen to hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) watches: u64,
    /// Sent over Unix sockets and not received.
    pub(super) passed: u64,
    /// Something could not be read, or there was too much of it.
    pub(super) is_incomplete: bool,
}

/// Which descriptor tables are read. Threads share one, unless a box goes out of its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    OfProcesses,
    /// A table that threads share counts once for each.
    OfThreads,
}

/// A look at a box with more descriptors than [`MAX_DESCRIPTORS`], which takes several calls of [`held`].
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The process and thread whose table is read next, by their numbers in the box; 0 at the beginning.
    next: (u32, u32),
    /// What the calls before have counted.
    held: Held,
}

/// Counts until `enough` watches were seen. `init` is the box's PID 1, by its number on the host. A call that would read
/// more than [`MAX_DESCRIPTORS`] stops before the next descriptor table, stores in `look` where the next call goes on, and
/// returns what all of them have counted.
pub(super) fn held(init: u32, tables: Tables, enough: u64, look: &mut Look) -> Held {
    let Look { next, held } = std::mem::take(look);
    let mut count = Count { held, descriptors: 0, limit: MAX_DESCRIPTORS, enough };
    let processes = match processes(init) {
        Processes::Seen(processes) => processes,
        Processes::None => return count.held,
        Processes::Closed => return Held { is_incomplete: true, ..count.held },
    };
    if let Some(next) = count.processes(&processes, tables, next) {
        count.held.is_incomplete = true;
        *look = Look { next, held: count.held };
    }
    count.held
}

/// The processes of a box.
enum Processes {
    /// The box's own `/proc`, which lists no others.
    Seen(OwnedFd),
    None,
    /// There are some, and none lets us look.
    Closed,
}

/// PID 1 is a copy of our process and closed to us; its children were executed in the box.
fn processes(init: u32) -> Processes {
    let Ok(children) = kernel_file::read(&format!("/proc/{init}/task/{init}/children")) else {
        return Processes::Closed;
    };
    let mut children = children.split_ascii_whitespace().peekable();
    if children.peek().is_none() {
        return Processes::None;
    }
    let seen = children.find_map(|child| {
        // A process whose first thread has ended has a root directory in its other threads only.
        let threads = || open_directory(rustix::fs::CWD, &path(&format!("/proc/{child}/task"))?).ok();
        let of_thread = |thread: CString| own_proc(&format!("/proc/{child}/task/{}", number(&thread)));
        own_proc(&format!("/proc/{child}")).or_else(|| names(&threads()?).into_iter().find_map(of_thread))
    });
    seen.map_or(Processes::Closed, Processes::Seen)
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
    /// Descriptors read by one call.
    limit: u32,
    enough: u64,
}

/// What became of one descriptor table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Table {
    /// It holds no descriptor.
    Empty,
    Counted,
    /// It is not read by this call, which has read enough descriptors.
    Left,
}

impl Count {
    /// Returns the process and thread to go on with if a table was left.
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
                    Table::Left => return Some((process, 0)),
                    // The table of a process is empty when its first thread has ended; its other threads still have it.
                    Table::Empty => {}
                }
            }
            let Ok(threads) = open_directory(processes.as_fd(), &join(&pid, b"task")) else { continue };
            for thread in names(&threads) {
                let id = number(&thread);
                if id >= first_thread && self.table(threads.as_fd(), &thread) == Table::Left {
                    return Some((process, id));
                }
            }
        }
        None
    }

    /// Adds what one descriptor table holds.
    fn table(&mut self, parent: BorrowedFd<'_>, task: &CStr) -> Table {
        if self.held.watches > self.enough {
            return Table::Counted;
        }
        let directory = match open_directory(parent, &join(task, b"fdinfo")) {
            Ok(directory) => directory,
            // It has ended.
            Err(Errno::NOENT | Errno::SRCH) => return Table::Counted,
            Err(_) => {
                self.held.is_incomplete = true;
                return Table::Counted;
            }
        };
        let names = names(&directory);
        let length = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if self.descriptors > 0 && self.descriptors.saturating_add(length) > self.limit {
            return Table::Left;
        }
        // One table alone can have more only where RLIMIT_NOFILE of a box is above its 4,096.
        self.held.is_incomplete |= length > self.limit;
        for name in names.iter().take(self.limit as usize) {
            if self.held.watches > self.enough {
                break;
            }
            self.descriptors += 1;
            // Closed meanwhile, or its process has ended.
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
    fn descriptors_beyond_the_limit_are_counted_by_the_next_calls() {
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
