//! Writes the inputs of an exec. All are checked and written to `.staging` before the first is
//! renamed into `inputs`.
//!
//! Because of the rename, a box that runs in the same project reads the old or the new content. No
//! box can write to `inputs`; nevertheless symlinks in it are not followed: one with the name of an
//! input is replaced, one in the path of an input is an error.

use std::collections::BTreeSet;
use std::io::Write;

use ringwall_ids::{ExecId, quote};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::project::{Project, READABLE_DIRECTORY};
use crate::relative_path::RelativePath;
use crate::workspaces::Owner;

const READABLE_FILE: Mode = Mode::from_raw_mode(0o644);

/// A file that an exec request contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Relative to `inputs/`.
    pub path: RelativePath,
    pub content: Vec<u8>,
}

impl Project {
    /// Writes the inputs of an exec. They stay until they are overwritten. After an error none was
    /// written.
    ///
    /// Exception: if a rename fails, for example on a full disk, the inputs before it stay. The
    /// error names the failed one.
    pub fn write_inputs(&self, exec: &ExecId, inputs: &[Input]) -> Result<(), Error> {
        check_each_other(inputs)?;
        inputs.iter().try_for_each(|input| self.check_target(&input.path))?;
        let names: Vec<String> = (0..inputs.len()).map(|number| format!("{exec}.input-{number}")).collect();
        let written = self.write_all(inputs, &names);
        if written.is_err() {
            for name in &names {
                // Inputs that were renamed no longer exist under this name. If the removal fails, a
                // sweep removes the file with the other files of the exec.
                let _ = rustix::fs::unlinkat(self.staging(), name.as_str(), AtFlags::empty());
            }
        }
        written
    }

    fn write_all(&self, inputs: &[Input], names: &[String]) -> Result<(), Error> {
        for (input, name) in inputs.iter().zip(names) {
            self.stage(input, name).map_err(|source| Error::WriteInput { path: input.path.clone(), source })?;
        }
        for (input, name) in inputs.iter().zip(names) {
            self.rename_into_inputs(&input.path, name)?;
        }
        Ok(())
    }

    fn stage(&self, input: &Input, name: &str) -> std::io::Result<()> {
        let mut file = beneath::create_file(self.staging(), name)?;
        file.write_all(&input.content)?;
        rustix::fs::fchmod(&file, READABLE_FILE)?;
        Ok(())
    }

    /// Finds obstacles before anything is written.
    fn check_target(&self, path: &RelativePath) -> Result<(), Error> {
        match beneath::locate(self.inputs(), path.as_str()) {
            Ok((_, status)) if FileType::from_raw_mode(status.st_mode) == FileType::Directory => {
                Err(Error::InputIsDirectory(path.clone()))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.explain(path, errno)),
        }
    }

    fn rename_into_inputs(&self, path: &RelativePath, staged: &str) -> Result<(), Error> {
        let (parent, name) = path.split();
        let created;
        let parent = match parent {
            None => &self.inputs().handle,
            Some(parent) => {
                created =
                    beneath::ensure_directories(&self.inputs().handle, parent, READABLE_DIRECTORY, Owner::server())
                        .map_err(|errno| self.explain(path, errno))?;
                &created
            }
        };
        rustix::fs::renameat(self.staging(), staged, parent, name).map_err(|errno| self.explain(path, errno))
    }

    /// Returns an error that names the obstacle.
    fn explain(&self, path: &RelativePath, errno: Errno) -> Error {
        match errno {
            Errno::ISDIR => Error::InputIsDirectory(path.clone()),
            Errno::NOTDIR | Errno::LOOP => {
                let is_directory = |parent: &&str| {
                    beneath::locate(self.inputs(), *parent)
                        .is_ok_and(|(_, status)| FileType::from_raw_mode(status.st_mode) == FileType::Directory)
                };
                let parent = parents(path).find(|parent| !is_directory(parent)).unwrap_or(path.as_str());
                Error::InputBelowFile { path: path.clone(), parent: quote(parent) }
            }
            _ => Error::WriteInput { path: path.clone(), source: errno.into() },
        }
    }
}

fn check_each_other(inputs: &[Input]) -> Result<(), Error> {
    let mut paths = BTreeSet::new();
    for input in inputs {
        if !paths.insert(input.path.as_str()) {
            return Err(Error::InputTwice(input.path.clone()));
        }
    }
    for input in inputs {
        if let Some(parent) = parents(&input.path).find(|parent| paths.contains(parent)) {
            return Err(Error::InputBelowFile { path: input.path.clone(), parent: quote(parent) });
        }
    }
    Ok(())
}

/// The parent directories, the outermost first.
fn parents(path: &RelativePath) -> impl Iterator<Item = &str> {
    path.as_str().match_indices('/').map(|(end, _)| &path.as_str()[..end])
}
