//! Traces of boxes and servers on the host: processes, mounts, cgroups.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, WaitOptions, waitpid};

use super::host::{descendants, is_alive};

/// Makes this process the parent of every orphan among its descendants.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Pid::from_raw(1))?)
}

/// Descendants that are not zombies. Reaps adopted zombies.
pub fn living() -> io::Result<Vec<u32>> {
    let found = descendants(std::process::id())?;
    let is_living = |number: &u32| {
        let alive = is_alive(*number);
        if !alive && let Some(pid) = i32::try_from(*number).ok().and_then(Pid::from_raw) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        alive
    };
    Ok(found.into_iter().filter(is_living).collect())
}

/// Describes a process for a message.
pub fn describe(number: u32) -> String {
    let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
    format!("process {number} {:?}", String::from_utf8_lossy(&line).replace('\0', " "))
}

/// All mounts of this process's namespace.
pub fn mounts() -> io::Result<BTreeSet<String>> {
    Ok(fs::read_to_string("/proc/self/mountinfo")?.lines().map(str::to_owned).collect())
}

/// Cgroup directories of boxes made by one of `makers`, in every hierarchy.
pub fn cgroups_of(makers: &[u32]) -> Vec<PathBuf> {
    if makers.is_empty() {
        return Vec::new();
    }
    cgroups().into_iter().filter(|(maker, _)| makers.contains(maker)).map(|(_, path)| path).collect()
}

/// All cgroups of boxes, each with the PID of the process that made it.
pub fn cgroups() -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    let mut open = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                let maker = name.strip_prefix("ringwall-").and_then(|rest| rest.split('-').next()?.parse().ok());
                found.extend(maker.map(|maker| (maker, entry.path())));
                open.push(entry.path());
            }
        }
    }
    found
}
