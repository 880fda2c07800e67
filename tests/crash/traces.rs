//! What a box leaves on the host, seen from outside: processes, mounts, cgroups, namespaces, temporary files.
//!
//! This process adopts every orphan among its descendants, so that nothing it started can hide by outliving its parent.
//! It looks again and again until a deadline: after a kill, the kernel needs a moment.

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

/// How long something may still be there, on a machine that is busy; it only passes where something is wrong.
const SOON: Duration = Duration::from_secs(60);
/// The first user id that a box gets on the host when the product runs as root.
const FIRST_BOX_UID: u32 = 1_880_000_000;

static ALONE: Mutex<()> = Mutex::new(());

/// The host before a test.
pub(crate) struct Host {
    pub(crate) mode: Mode,
    mounts: BTreeSet<String>,
    temporary: BTreeSet<PathBuf>,
    /// Left by others: the numbers of processes come again.
    cgroups: BTreeSet<PathBuf>,
    _alone: MutexGuard<'static, ()>,
}

/// `None` when the mode cannot run here, which is said aloud.
pub(crate) fn host(mode: Mode) -> Option<Host> {
    // Before anything is started: whoever holds it may look at, and end, all that this process started.
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match mode.available() {
        Ok(()) => {}
        Err(Skip::Missing(reason)) => panic!("{} cannot run: {reason}", mode.name()),
        Err(Skip::Impossible(reason)) => {
            // Past the harness, which swallows what a passing test prints.
            let _ = writeln!(std::io::stderr().lock(), "skipped: crash and leaks ({}): {reason}", mode.name());
            return None;
        }
    }
    adopt_orphans().unwrap();
    // A test that failed before this one may have left something, which is its failure alone.
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

    /// Waits until nothing of the boxes that `makers` made is left.
    pub(crate) fn assert_clean(&self, makers: &[u32], what: &str) {
        let found = self.left_behind(makers);
        assert!(found.is_empty(), "{} {what}: left behind: {found:#?}", self.mode.name());
    }

    /// What is still there when there should be nothing. Without makers no cgroup counts: when the whole family was
    /// killed, nobody is left to remove them.
    pub(crate) fn left_behind(&self, makers: &[u32]) -> Vec<String> {
        let deadline = Instant::now() + SOON;
        loop {
            let found = self.traces(makers);
            if found.is_empty() || Instant::now() >= deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn traces(&self, makers: &[u32]) -> Vec<String> {
        let mut found: Vec<String> = living().unwrap().into_iter().map(describe).collect();
        found.extend(mounts().unwrap().symmetric_difference(&self.mounts).map(|line| format!("mount {line}")));
        found.extend(temporary().difference(&self.temporary).map(|path| format!("file {}", path.display())));
        let left = cgroups_of(makers).into_iter().filter(|path| !self.cgroups.contains(path));
        found.extend(left.map(|path| format!("cgroup {}", path.display())));
        found
    }
}

/// The product, started and listened to.
pub(crate) struct Started {
    pub(crate) child: Child,
    errors: Receiver<String>,
}

impl Started {
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

    /// The processes that are neither the product nor the command but keep the box, outermost first: all those below
    /// the product that run its program.
    pub(crate) fn keepers(&self) -> Vec<u32> {
        let program =
            |number: u32| fs::metadata(format!("/proc/{number}/exe")).map(|file| (file.dev(), file.ino())).ok();
        let own = program(self.id());
        descendants(self.id()).unwrap().into_iter().filter(|number| program(*number) == own).collect()
    }

    /// Waits for the end of the product itself; `None` when it does not come.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + 2 * SOON;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// Ends a process at once; one that is gone already is fine.
pub(crate) fn kill(number: u32) {
    if let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Files in shared places that are ours by name, or belong to a box's user.
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

/// Network namespaces that some process on the host is in.
pub(crate) fn network_namespaces() -> BTreeSet<String> {
    let name = |number| fs::read_link(format!("/proc/{number}/ns/net")).ok();
    processes().unwrap().into_iter().filter_map(name).map(|path| path.to_string_lossy().into_owned()).collect()
}
