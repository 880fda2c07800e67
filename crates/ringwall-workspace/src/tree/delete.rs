//! Deleting a file, or a directory with everything in it: first out of sight in one step, then taken apart there.
//!
//! The parent is found through no link, and what has the name is moved as it is, a link too: nothing behind one is ever
//! touched. Taking a large tree apart takes long, and needs no lock any more.

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::{Error, quote};
use crate::exec_files::remove::REMOVED;
use crate::exec_id::random_digits;
use crate::fs::beneath;
use crate::fs::erase::erase;
use crate::workspaces::Workspace;

use super::find::explain;
use super::open::Tree;
use super::path::AgentPath;
use super::refusal::Refusal;

/// What was deleted and still takes up room.
#[derive(Debug)]
#[must_use = "what is deleted takes up room until it is erased"]
pub struct Removed {
    workspace: Workspace,
    name: String,
    given: String,
}

impl Tree {
    /// Takes what is at a path away. The sections themselves stay.
    pub fn delete(&self, path: &AgentPath) -> Result<Removed, Error> {
        let Some(inner) = path.inner() else { return Err(Refusal::OutOfScope(path.given().to_owned()).into()) };
        let (parent, name) = inner.split();
        let staging = self.workspace().staging();
        let hidden = format!("{REMOVED}{}", random_digits()?);
        let hide = || {
            let parent = beneath::look_up(
                self.section(path.section()),
                parent.unwrap_or("."),
                OFlags::PATH | OFlags::DIRECTORY,
                Mode::empty(),
            )?;
            rustix::fs::renameat_with(&parent, name, staging, hidden.as_str(), RenameFlags::NOREPLACE)
        };
        let hidden_or_not = match hide() {
            // Only a server without privileges gets here, and may remove what is its own. A directory that is moved must
            // be writable itself, because its `..` changes.
            Err(Errno::ACCESS) => {
                self.unlock(path);
                hide()
            }
            Err(Errno::NOTDIR) if self.meets_link(path) => Err(Errno::LOOP),
            outcome => outcome,
        };
        hidden_or_not.map_err(|errno| explain(path, errno))?;
        Ok(Removed { workspace: self.workspace().clone(), name: hidden, given: path.given().to_owned() })
    }
}

impl Removed {
    /// Gives its room back. What fails is swept when the server starts again.
    pub fn erase(self) -> Result<(), Error> {
        let fail = |errno: Errno| Error::Remove { subject: quote(&self.given), source: errno.into() };
        erase(self.workspace.staging(), &self.name).map_err(fail)
    }
}
