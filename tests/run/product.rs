//! The product from a user's chair: its command line, and the traces that a run could leave on the host.
//! Traces are looked for once the product has ended, without waiting: when it returns, nothing may be left.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tests::support::actor::Mode;
use tests::support::boxed::{BoxRun, binary};
use tests::support::process::{Ending, Live, Outcome, run};
use tests::support::scratch::token;

/// The binary with no arguments yet.
pub(crate) fn ringwall(mode: Mode) -> Command {
    mode.identity().command(binary().unwrap())
}

/// `ringwall` with these words, run to its end.
pub(crate) fn say<S: AsRef<OsStr>>(mode: Mode, words: &[S]) -> Outcome {
    let mut command = ringwall(mode);
    command.args(words);
    run(command, None).unwrap()
}

/// `ringwall run` in the making.
pub(crate) fn boxed(mode: Mode) -> BoxRun {
    BoxRun::new(mode, &binary().unwrap())
}

/// `ringwall run -- sh -c SCRIPT`, which must end well and say nothing on standard error.
pub(crate) fn shell(run: &BoxRun, script: &str) -> String {
    let outcome = run.run(&["/bin/sh", "-c", script]).unwrap();
    assert_eq!(outcome.code(), Some(0), "{script}: {}", outcome.describe());
    assert_eq!(outcome.errors(), "", "{script}");
    outcome.text()
}

/// A running product whose every process carries a mark in its environment.
pub(crate) struct Marked {
    pub(crate) live: Live,
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

    /// Waits for the end, and finds no process and no cgroup of the run.
    pub(crate) fn finish(self) -> Outcome {
        let id = self.live.id();
        let outcome = self.live.finish().unwrap();
        assert_eq!(outcome.ending, Ending::Own, "{}", outcome.describe());
        assert_eq!(carriers(&self.mark), Vec::<u32>::new(), "processes left by {}", outcome.describe());
        assert_eq!(cgroups_of(id), Vec::<PathBuf>::new(), "cgroups left by {}", outcome.describe());
        outcome
    }

    /// The processes that carry the mark now.
    pub(crate) fn processes(&self) -> Vec<u32> {
        carriers(&self.mark)
    }
}

/// Processes whose environment holds `mark`. One that may not be looked into is not ours.
pub(crate) fn carriers(mark: &str) -> Vec<u32> {
    let holds = |number: &u32| {
        fs::read(format!("/proc/{number}/environ"))
            .is_ok_and(|bytes| bytes.windows(mark.len()).any(|window| window == mark.as_bytes()))
    };
    let own = std::process::id();
    tests::support::host::processes().unwrap().into_iter().filter(|number| *number != own).filter(holds).collect()
}

/// Cgroup directories of the boxes that process `id` made, in every hierarchy.
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

/// The product refused before anything ran: exit 2, this sentence, nothing on standard output.
pub(crate) fn assert_refused(outcome: &Outcome, sentence: &str) {
    assert_eq!(outcome.code(), Some(2), "{}", outcome.describe());
    assert_eq!(outcome.text(), "", "{}", outcome.describe());
    assert!(outcome.errors().contains(sentence), "expected {sentence:?}: {}", outcome.describe());
}
