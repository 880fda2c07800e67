//! Helpers that run the ringwall binary and look for processes and cgroups that a run left behind.
//!
//! They look once after ringwall has exited, without waiting: everything must be gone by then.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tests::support::actor::Mode;
use tests::support::boxed::{BoxRun, binary};
use tests::support::process::{Ending, LiveProcess, Outcome, run};
use tests::support::scratch::token;

/// A command for the binary, without arguments.
pub(crate) fn ringwall_command(mode: Mode) -> Command {
    mode.identity().command(binary().unwrap())
}

/// Runs ringwall with these arguments.
pub(crate) fn run_ringwall<S: AsRef<OsStr>>(mode: Mode, words: &[S]) -> Outcome {
    let mut command = ringwall_command(mode);
    command.args(words);
    run(command, None).unwrap()
}

/// A builder for `ringwall run`.
pub(crate) fn boxed(mode: Mode) -> BoxRun {
    BoxRun::new(mode, &binary().unwrap())
}

/// Runs `ringwall run -- sh -c SCRIPT`, which must succeed without output on standard error, and returns
/// its standard output.
pub(crate) fn shell(run: &BoxRun, script: &str) -> String {
    let outcome = run.run(&["/bin/sh", "-c", script]).unwrap();
    assert_eq!(outcome.code(), Some(0), "{script}: {}", outcome.describe());
    assert_eq!(outcome.errors(), "", "{script}");
    outcome.text()
}

/// A `ringwall run` whose processes in the box have a unique mark in their environment.
pub(crate) struct Marked {
    pub(crate) live: LiveProcess,
    mark: String,
}

impl Marked {
    pub(crate) fn start<S: AsRef<OsStr>>(run: BoxRun, words: &[S]) -> Self {
        let mark = token().unwrap();
        let live = run.option("--env", format!("MARK={mark}")).start(words).unwrap();
        Self { live, mark }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.live.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end and checks that no process and no cgroup of the run is left.
    pub(crate) fn finish(self) -> Outcome {
        let id = self.live.id();
        let outcome = self.live.finish().unwrap();
        assert_eq!(outcome.ending, Ending::Own, "{}", outcome.describe());
        assert_eq!(marked_processes(&self.mark), Vec::<u32>::new(), "processes left by {}", outcome.describe());
        assert_eq!(cgroups_of(id), Vec::<PathBuf>::new(), "cgroups left by {}", outcome.describe());
        outcome
    }

    /// The processes with the mark.
    pub(crate) fn processes(&self) -> Vec<u32> {
        marked_processes(&self.mark)
    }
}

/// Processes whose environment contains `mark`. Skips processes whose environment this user cannot read.
pub(crate) fn marked_processes(mark: &str) -> Vec<u32> {
    let holds = |number: &u32| {
        fs::read(format!("/proc/{number}/environ"))
            .is_ok_and(|bytes| bytes.windows(mark.len()).any(|window| window == mark.as_bytes()))
    };
    let own = std::process::id();
    tests::support::host::processes().unwrap().into_iter().filter(|number| *number != own).filter(holds).collect()
}

/// Cgroup directories of the boxes of the ringwall process `id`, in every hierarchy.
pub(crate) fn cgroups_of(id: u32) -> Vec<PathBuf> {
    let prefix = format!("ringwall-{id}-");
    let mut found = Vec::new();
    let mut open = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&prefix) {
                    found.push(entry.path());
                }
                open.push(entry.path());
            }
        }
    }
    found
}

/// Checks that nothing ran: exit code 2, this text on standard error, no standard output.
pub(crate) fn assert_refused(outcome: &Outcome, sentence: &str) {
    assert_eq!(outcome.code(), Some(2), "{}", outcome.describe());
    assert_eq!(outcome.text(), "", "{}", outcome.describe());
    assert!(outcome.errors().contains(sentence), "expected {sentence:?}: {}", outcome.describe());
}
