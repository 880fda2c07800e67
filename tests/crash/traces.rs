//! Finds what boxes left on the host: processes, mounts, cgroups, namespaces and temporary files.
//!
//! This process adopts the orphans among its descendants, so that it finds processes that outlive
//! their parent. Checks are repeated until a deadline, because the kernel needs time after a kill.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::support::actor::{Mode, Skip};
use tests::support::boxed::{BoxRun, binary};
use tests::support::host::{descendants, processes};
use tests::support::process::DEADLINE;
use tests::support::traces::{adopt_orphans, cgroups, cgroups_of, describe, living, mounts};

/// Maximum wait until everything is gone. Long enough for a busy machine; a test that passes does
/// not wait for it.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The first host user id of boxes that are started as root.
const FIRST_BOX_UID: u32 = 1_880_000_000;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The host before a test.
pub(crate) struct Host {
    pub(crate) mode: Mode,
    mounts: BTreeSet<String>,
    temporary: BTreeSet<PathBuf>,
    /// Cgroups from before the test: their names contain process ids, which the kernel reuses.
    cgroups: BTreeSet<PathBuf>,
    _alone: MutexGuard<'static, ()>,
}

/// `None` if the mode cannot run here, after printing the reason.
pub(crate) fn host(mode: Mode) -> Option<Host> {
    // The holder may check and kill all processes that this program started.
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match mode.available() {
        Ok(()) => {}
        Err(Skip::Missing(reason)) => panic!("{} cannot run: {reason}", mode.name()),
        Err(Skip::Impossible(reason)) => {
            // Directly to stderr, because the harness hides the output of passing tests.
            let _ = writeln!(std::io::stderr().lock(), "skipped: crash and leaks ({}): {reason}", mode.name());
            return None;
        }
    }
    adopt_orphans().unwrap();
    // Processes that a failed test left must not fail this one.
    for number in descendants(std::process::id()).unwrap() {
        kill(number);
    }
    let cgroups = cgroups().into_iter().map(|(_, path)| path).collect();
    Some(Host { mode, mounts: mounts().unwrap(), temporary: temporary(), cgroups, _alone: alone })
}

impl Host {
    pub(crate) fn boxed(&self) -> BoxRun {
        BoxRun::new(self.mode, &binary().unwrap())
    }

    /// Waits until nothing is left of the boxes that the processes `programs` started.
    pub(crate) fn assert_clean(&self, programs: &[u32], what: &str) {
        let found = self.left_behind(programs);
        assert!(found.is_empty(), "{} {what}: left behind: {found:#?}", self.mode.name());
    }

    /// Returns what is left at the deadline, or nothing. Without `programs` cgroups are not
    /// checked: if all processes were killed, none was left to remove them.
    pub(crate) fn left_behind(&self, programs: &[u32]) -> Vec<String> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let found = self.traces(programs);
            if found.is_empty() || Instant::now() >= deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn traces(&self, programs: &[u32]) -> Vec<String> {
        let mut found: Vec<String> = living().unwrap().into_iter().map(describe).collect();
        found.extend(mounts().unwrap().symmetric_difference(&self.mounts).map(|line| format!("mount {line}")));
        found.extend(temporary().difference(&self.temporary).map(|path| format!("file {}", path.display())));
        let left = cgroups_of(programs).into_iter().filter(|path| !self.cgroups.contains(path));
        found.extend(left.map(|path| format!("cgroup {}", path.display())));
        found
    }
}

/// A running `ringwall run`, with its standard error.
pub(crate) struct RunningProgram {
    pub(crate) child: Child,
    errors: Receiver<String>,
}

impl RunningProgram {
    pub(crate) fn new(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, errors) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, errors }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for this line on standard error.
    pub(crate) fn await_line(&mut self, wanted: &str) {
        let mut others = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(DEADLINE) {
            if line == wanted {
                return;
            }
            others.push(line);
        }
        panic!("never said {wanted:?}, but {others:?}; {:?}", self.child.try_wait());
    }

    /// The helper processes of the box, outermost first: all descendants that run the same program
    /// file.
    pub(crate) fn helpers(&self) -> Vec<u32> {
        let program =
            |number: u32| fs::metadata(format!("/proc/{number}/exe")).map(|file| (file.dev(), file.ino())).ok();
        let own = program(self.id());
        descendants(self.id()).unwrap().into_iter().filter(|number| program(*number) == own).collect()
    }

    /// Waits for the end of the program; `None` at the deadline.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + 2 * MAX_WAIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// Kills a process, if it exists.
pub(crate) fn kill(number: u32) {
    if let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Files in shared directories that have our name or belong to the user of a box.
fn temporary() -> BTreeSet<PathBuf> {
    let ours = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().contains("ringwall")
            || fs::symlink_metadata(entry.path())
                .is_ok_and(|found| found.uid() >= FIRST_BOX_UID && found.uid() < 1 << 31)
    };
    let list = |directory: &str| fs::read_dir(directory).into_iter().flatten().flatten().collect::<Vec<_>>();
    let entries = ["/tmp", "/var/tmp", "/dev/shm", "/run"].into_iter().flat_map(list);
    entries.filter(ours).map(|entry| entry.path()).collect()
}

/// The network namespaces of all processes on the host.
pub(crate) fn network_namespaces() -> BTreeSet<String> {
    let name = |number| fs::read_link(format!("/proc/{number}/ns/net")).ok();
    processes().unwrap().into_iter().filter_map(name).map(|path| path.to_string_lossy().into_owned()).collect()
}
