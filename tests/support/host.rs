//! The host's process table, namespaces and mounts, read from `/proc` and never through the
//! product.
//!
//! It only reads, except that it kills processes whose PID the process itself reported to the test.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

/// The namespaces that a box must not share with the host.
pub const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// All current PIDs.
pub fn processes() -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Processes whose command line contains `mark`. Processes that end meanwhile are left out.
pub fn marked(mark: &str) -> io::Result<Vec<u32>> {
    Ok(processes()?
        .into_iter()
        .filter(|number| {
            fs::read(format!("/proc/{number}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
        })
        .collect())
}

/// Processes that run the file at `program`.
pub fn running(program: &Path) -> io::Result<Vec<u32>> {
    Ok(processes()?
        .into_iter()
        .filter(|number| fs::read_link(format!("/proc/{number}/exe")).is_ok_and(|target| target == program))
        .collect())
}

/// All descendants of a process, in no order.
pub fn descendants(ancestor: u32) -> io::Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in processes()? {
        if let Some(parent) = field(number, "PPid").and_then(|text| text.parse().ok()) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![ancestor];
    while let Some(number) = open.pop() {
        for child in children.remove(&number).unwrap_or_default() {
            found.push(child);
            open.push(child);
        }
    }
    Ok(found)
}

/// One field of `/proc/N/status`.
pub fn field(number: u32, name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{number}/status"))
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|rest| rest.trim().to_owned()))
}

/// The namespace ids of every thread of a process: for each thread, kind to id.
pub fn thread_namespaces(process: &str) -> io::Result<Vec<BTreeMap<String, PathBuf>>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let mut ids = BTreeMap::new();
        for kind in NAMESPACES {
            ids.insert(
                kind.to_owned(),
                fs::read_link(entry.as_ref().map_err(clone_error)?.path().join("ns").join(kind))?,
            );
        }
        threads.push(ids);
    }
    Ok(threads)
}

fn clone_error(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// True if a process exists and is not a zombie.
pub fn is_alive(number: u32) -> bool {
    field(number, "State").is_some_and(|state| !state.starts_with('Z') && !state.starts_with('X'))
}

/// Zombie descendants of a process.
pub fn zombies(ancestor: u32) -> io::Result<Vec<u32>> {
    let is_zombie = |number: &u32| field(*number, "State").is_some_and(|state| state.starts_with('Z'));
    Ok(descendants(ancestor)?.into_iter().filter(is_zombie).collect())
}

/// Kills a process by its PID. A process that has ended is no error.
pub fn end(number: u32) -> io::Result<()> {
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    match kill_process(pid, Signal::KILL) {
        Err(error) if error != rustix::io::Errno::SRCH => Err(error.into()),
        _ => Ok(()),
    }
}
