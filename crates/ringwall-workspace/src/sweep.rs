//! Removing what a crash left on its way: directories of boxes that are gone, files that never got their names,
//! removals and uploads that were cut off.
//!
//! All of it lies among the staged of its workspace, so a sweep costs as much as there are workspaces and leftovers,
//! however many projects and execs there were. Names are read as they come and never gathered. What the server did not
//! make is not touched, and a spare directory is no leftover.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, RenameFlags};
use rustix::io::Errno;

use crate::error::{Error, quote};
use crate::exec_files::begin::whose_output;
use crate::exec_files::remove::REMOVED;
use crate::exec_id::ExecId;
use crate::fs::beneath;
use crate::fs::erase::erase;
use crate::name::ProjectId;
use crate::project::ARTIFACTS;
use crate::skills::{UNFINISHED, resume};
use crate::tree::{ARRIVING, Section};
use crate::workspaces::{PROJECTS, STAGING, Workspaces};

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    pub removed: u64,
    /// What could not be removed; the rest was swept all the same.
    pub failed: u64,
    pub first_failure: Option<Error>,
}

/// What the record says of an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// It is there, in this project.
    In(ProjectId),
    Nowhere,
    /// It could not be asked.
    Unclear,
}

impl Workspaces {
    /// Removes the leftovers of every exec that does not run, and of whatever was uploaded, written or removed. Meant for
    /// the server's start: nobody may be doing any of these meanwhile, and an exec counts as running from before its inputs
    /// are written. Of an exec that was cut off before it was on record, the empty files for its output go too; output that
    /// did not get its place before gets it now.
    pub fn sweep(&self, is_running: impl Fn(&ExecId) -> bool, recorded: impl Fn(&ExecId) -> Recorded) -> Swept {
        let mut swept = Swept::default();
        swept.each_name(&self.root, |swept, user| {
            let Some(holder) = swept.open(&self.root, user) else {
                return;
            };
            swept.each_name(&holder, |swept, agent| {
                let Some(staging) = swept.open(&holder, &format!("{agent}/{STAGING}")) else {
                    return;
                };
                swept.each_name(&staging, |swept, name| {
                    if name.starts_with(UNFINISHED) {
                        swept.finish_upload(&holder, agent, &staging, name);
                    }
                    if let Some(exec) = whose_output(name)
                        && !is_running(&exec)
                    {
                        // Whoever left it may still be dying, and never leaves.
                        let stay = self.presence.enter(&staging);
                        swept.note(name, stay);
                        match recorded(&exec) {
                            Recorded::In(project) => swept.show(&holder, agent, &project, (&staging, name), &exec),
                            Recorded::Nowhere => swept.erase(&staging, name),
                            Recorded::Unclear => {}
                        }
                    }
                    if is_leftover(name, &is_running) {
                        // Whoever left it may still be dying, and never leaves.
                        let stay = self.presence.enter(&staging);
                        swept.note(name, stay);
                        if let Ok(exec) = name.parse::<ExecId>()
                            && recorded(&exec) == Recorded::Nowhere
                        {
                            swept.remove_output(&holder, agent, &exec);
                        }
                        swept.erase(&staging, name);
                    }
                });
            });
        });
        swept
    }
}

impl Swept {
    /// An upload that was cut off while its skills were swapped in goes on; then what is left of it is removed.
    fn finish_upload(&mut self, holder: &OwnedFd, agent: &str, staging: &OwnedFd, name: &str) {
        let skills = self.open(holder, &format!("{agent}/{}", Section::Skills.name()));
        let resumed = match skills {
            Some(skills) => resume(staging, name, skills),
            None => Ok(()),
        };
        let removed = resumed.and_then(|()| erase(staging, name));
        self.removed += u64::from(removed.is_ok());
        self.note(name, removed);
    }

    fn erase(&mut self, staging: &OwnedFd, name: &str) {
        let removed = erase(staging, name);
        self.removed += u64::from(removed.is_ok());
        self.note(name, removed);
    }

    /// Gives output the place that it would have got.
    fn show(
        &mut self,
        holder: &OwnedFd,
        agent: &str,
        project: &ProjectId,
        (staging, name): (&OwnedFd, &str),
        exec: &ExecId,
    ) {
        // A project that is gone has no output either.
        let Some(artifacts) = self.open(holder, &format!("{agent}/{PROJECTS}/{project}/{ARTIFACTS}")) else {
            return self.erase(staging, name);
        };
        let shown = rustix::fs::renameat_with(staging, name, &artifacts, exec.as_str(), RenameFlags::NOREPLACE);
        self.note(name, shown);
    }

    /// Which project it is in, nobody knows who only has the staged.
    fn remove_output(&mut self, holder: &OwnedFd, agent: &str, exec: &ExecId) {
        let Some(projects) = self.open(holder, &format!("{agent}/{PROJECTS}")) else { return };
        self.each_name(&projects, |swept, project| {
            let Some(artifacts) = swept.open(&projects, &format!("{project}/{ARTIFACTS}")) else { return };
            let removed = erase(&artifacts, exec.as_str());
            swept.note(exec.as_str(), removed);
        });
    }

    pub(crate) fn each_name(&mut self, directory: &OwnedFd, mut act: impl FnMut(&mut Self, &str)) {
        let names = Dir::read_from(directory);
        let Some(mut names) = self.note("the names of a directory", names) else {
            return;
        };
        while let Some(entry) = names.read() {
            let Some(entry) = self.note("the names of a directory", entry) else {
                return;
            };
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => act(self, name),
            }
        }
    }

    /// A directory; anything else of that name is not the server's.
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

/// Whether a staged name belongs to an exec that is over, or to nobody.
pub(crate) fn is_leftover(name: &str, is_running: impl Fn(&ExecId) -> bool) -> bool {
    // Output may be that of an exec on record.
    if whose_output(name).is_some() {
        return false;
    }
    let owner = name.split_once('.').map_or(name, |(owner, _)| owner);
    match owner.parse::<ExecId>() {
        Ok(exec) => !is_running(&exec),
        Err(_) => name.starts_with(REMOVED) || name.starts_with(ARRIVING),
    }
}
