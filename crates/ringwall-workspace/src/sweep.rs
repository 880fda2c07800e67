//! Removes leftovers of a crash at server start: artifacts directories of dead execs, incomplete
//! files, interrupted uploads and deletions.
//!
//! Leftovers are found in `.staging`, so the cost depends on the number of workspaces and
//! leftovers, not of projects or execs; only an exec that is missing in the record costs a search
//! of all projects. Directories are read entry by entry and not collected in memory. Entries with
//! names that the server does not generate, and the directory `spare`, are left alone.

use std::os::fd::OwnedFd;

use ringwall_ids::{ExecId, ProjectId, quote};
use rustix::fs::{Dir, RenameFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::begin::exec_of_output;
use crate::fs::beneath;
use crate::fs::durable::TEMP_PREFIX;
use crate::fs::erase::{REMOVED_PREFIX, erase};
use crate::project::ARTIFACTS;
use crate::skills::resume_install;
use crate::tree::{Section, WRITE_PREFIX};
use crate::workspaces::{PROJECTS, STAGING, Workspaces};

/// Result of a sweep.
#[derive(Debug, Default)]
pub struct SweepResult {
    pub removed: u64,
    /// Entries that could not be removed. The sweep continues after a failure.
    pub failed: u64,
    pub first_failure: Option<Error>,
}

/// The entry of an exec in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEntry {
    /// It belongs to this project.
    InProject(ProjectId),
    Missing,
    /// Unknown, because the record could not be read. Output is kept.
    Unknown,
}

impl Workspaces {
    /// Removes the leftovers of execs that are not running, and of interrupted uploads, writes and
    /// deletions.
    ///
    /// For the start of the server: no upload, write or deletion may be in progress, and
    /// `is_running` must be true for an exec from before its inputs are written. If an exec is not
    /// in the record, its output is removed too. If it is, output in `.staging` is moved to the
    /// project's artifacts.
    pub fn sweep(
        &self,
        is_running: impl Fn(&ExecId) -> bool,
        recorded: impl Fn(&ExecId) -> RecordEntry,
    ) -> SweepResult {
        let mut result = SweepResult::default();
        result.each_workspace(&self.root, |result, directory| {
            let Some(staging) = result.open(directory, STAGING) else { return };
            result.each_name(&staging, |result, name| {
                if name.starts_with(TEMP_PREFIX) {
                    result.finish_upload(directory, &staging, name);
                }
                if let Some(exec) = exec_of_output(name)
                    && !is_running(&exec)
                {
                    // Processes of the exec may still be exiting. An enter without a leave
                    // disables recycling in this workspace until the server ends.
                    let presence = self.shared.overlaps.enter(&staging);
                    result.note(name, presence);
                    match recorded(&exec) {
                        RecordEntry::InProject(project) => {
                            result.move_output(directory, &project, (&staging, name), &exec)
                        }
                        RecordEntry::Missing => result.erase(&staging, name),
                        RecordEntry::Unknown => {}
                    }
                }
                if is_leftover(name, &is_running) {
                    let presence = self.shared.overlaps.enter(&staging);
                    result.note(name, presence);
                    if let Ok(exec) = name.parse::<ExecId>()
                        && recorded(&exec) == RecordEntry::Missing
                    {
                        result.remove_output(directory, &exec);
                    }
                    result.erase(&staging, name);
                }
            });
        });
        result
    }
}

impl SweepResult {
    /// Finishes the installation of an upload that was interrupted between two swaps, then removes
    /// its staging directory.
    fn finish_upload(&mut self, workspace: &OwnedFd, staging: &OwnedFd, name: &str) {
        let skills = self.open(workspace, Section::Skills.name());
        let resumed = skills.map_or(Ok(()), |skills| resume_install(staging, name, skills));
        if self.note(name, resumed).is_some() {
            self.erase(staging, name);
        }
    }

    fn erase(&mut self, staging: &OwnedFd, name: &str) {
        let removed = erase(staging, name);
        self.removed += u64::from(removed.is_ok());
        self.note(name, removed);
    }

    /// Moves output to the place where [`Collected::finish`](crate::Collected::finish) would have
    /// moved it.
    fn move_output(
        &mut self,
        workspace: &OwnedFd,
        project: &ProjectId,
        (staging, name): (&OwnedFd, &str),
        exec: &ExecId,
    ) {
        // The project was deleted, so its output goes as well.
        let Some(artifacts) = self.open(workspace, &format!("{PROJECTS}/{project}/{ARTIFACTS}")) else {
            return self.erase(staging, name);
        };
        let moved = rustix::fs::renameat_with(staging, name, &artifacts, exec.as_str(), RenameFlags::NOREPLACE);
        self.note(name, moved);
    }

    /// Searches all projects, because a name in `.staging` does not contain the project.
    fn remove_output(&mut self, workspace: &OwnedFd, exec: &ExecId) {
        let Some(projects) = self.open(workspace, PROJECTS) else { return };
        self.each_name(&projects, |result, project| {
            let Some(artifacts) = result.open(&projects, &format!("{project}/{ARTIFACTS}")) else { return };
            let removed = erase(&artifacts, exec.as_str());
            result.note(exec.as_str(), removed);
        });
    }

    /// Calls `act` with the directory of each workspace.
    pub(crate) fn each_workspace(&mut self, root: &OwnedFd, mut act: impl FnMut(&mut Self, &OwnedFd)) {
        self.each_name(root, |result, user| {
            let Some(user_dir) = result.open(root, user) else { return };
            result.each_name(&user_dir, |result, agent| {
                let Some(directory) = result.open(&user_dir, agent) else { return };
                act(result, &directory);
            });
        });
    }

    pub(crate) fn each_name(&mut self, directory: &OwnedFd, mut act: impl FnMut(&mut Self, &str)) {
        let names = Dir::read_from(directory);
        let Some(mut names) = self.note("the names of a directory", names) else { return };
        while let Some(entry) = names.read() {
            let Some(entry) = self.note("the names of a directory", entry) else { return };
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => act(self, name),
            }
        }
    }

    /// `None` if there is no directory of this name; the server creates only directories here.
    pub(crate) fn open(&mut self, parent: &OwnedFd, name: &str) -> Option<OwnedFd> {
        match beneath::open_directory(parent, name) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            outcome => self.note(name, outcome),
        }
    }

    pub(crate) fn note<T>(&mut self, subject: &str, outcome: rustix::io::Result<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(errno) => {
                self.failed += 1;
                self.first_failure
                    .get_or_insert_with(|| Error::Remove { subject: quote(subject), source: errno.into() });
                None
            }
        }
    }
}

/// True if a name in `.staging` belongs to an exec that is not running, or to an interrupted write
/// or deletion.
pub(crate) fn is_leftover(name: &str, is_running: impl Fn(&ExecId) -> bool) -> bool {
    // Output is kept until the record says that its exec does not exist.
    if exec_of_output(name).is_some() {
        return false;
    }
    let owner = name.split_once('.').map_or(name, |(owner, _)| owner);
    match owner.parse::<ExecId>() {
        Ok(exec) => !is_running(&exec),
        Err(_) => name.starts_with(REMOVED_PREFIX) || name.starts_with(WRITE_PREFIX),
    }
}
