//! Copies files of a baseline for a workspace into a directory that no box can reach.
//!
//! On file systems with shared extents (btrfs, XFS) a copy takes no space until it is changed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::baselines::snapshot::{BaselineFile, Version};
use crate::error::Error;
use crate::fs::beneath;
use crate::fs::durable::{Batch, TempDirectory};
use crate::project::READABLE_DIRECTORY;
use crate::relative_path::RelativePath;
use crate::workspaces::{Owner, Workspace};

/// A directory in `.staging` for copies, and for files that are checked before they are deleted.
#[derive(Debug)]
pub(crate) struct CheckoutDir {
    owner: Owner,
    directory: TempDirectory,
    count: u64,
    batch: Batch,
}

impl CheckoutDir {
    pub(crate) fn new(workspace: &Workspace) -> Result<Self, Error> {
        let directory = TempDirectory::create(workspace.staging())?;
        Ok(Self { owner: workspace.owner(), directory, count: 0, batch: Batch::default() })
    }

    pub(crate) fn handle(&self) -> &OwnedFd {
        &self.directory.handle
    }

    /// Returns an unused name in this directory.
    pub(crate) fn unused_name(&mut self) -> String {
        self.count += 1;
        self.count.to_string()
    }

    /// Copies a file and returns the name of the copy.
    pub(crate) fn copy(&mut self, version: &Version, path: &RelativePath, file: &BaselineFile) -> io::Result<String> {
        let name = self.unused_name();
        let target = beneath::create_file(self.handle(), name.as_str())?;
        copy(version, path, file, &target, self.owner)?;
        self.batch.add(&target)?;
        Ok(name)
    }

    /// Copies a whole skill and returns the name of the copy.
    pub(crate) fn copy_skill(&mut self, version: &Version) -> io::Result<String> {
        let (name, owner) = (self.unused_name(), self.owner);
        let directory = beneath::ensure_directory(self.handle(), name.as_str(), READABLE_DIRECTORY)?;
        add_missing_files(version, &directory, owner, &mut self.batch)?;
        beneath::set_owner_of_new(&directory, owner)?;
        Ok(name)
    }

    /// Syncs all copies to disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.batch.sync(&self.directory.handle)
    }
}

/// Adds the files of a version that `into` does not contain. No box may be able to reach `into`.
pub(crate) fn add_missing_files(version: &Version, into: &OwnedFd, owner: Owner, batch: &mut Batch) -> io::Result<()> {
    for (path, file) in &version.files {
        let (parent, name) = path.split();
        let parent = match parent {
            None => into.try_clone()?,
            Some(parent) => match beneath::ensure_directories(into, parent, READABLE_DIRECTORY, owner) {
                Err(Errno::NOTDIR | Errno::LOOP) => continue,
                outcome => outcome?,
            },
        };
        match beneath::create_file(&parent, name) {
            Err(Errno::EXIST | Errno::ISDIR) => {}
            outcome => {
                let target = outcome?;
                copy(version, path, file, &target, owner)?;
                batch.add(&target)?;
            }
        }
    }
    Ok(())
}

fn copy(
    version: &Version,
    path: &RelativePath,
    file: &BaselineFile,
    mut target: &File,
    owner: Owner,
) -> io::Result<()> {
    let (mut source, _) = beneath::open_regular(&version.directory, path.as_str())?.ok_or(Errno::INVAL)?;
    // Fails if the file system does not support it, or for files of two file systems.
    if rustix::fs::ioctl_ficlone(target, &source).is_err() {
        io::copy(&mut source, &mut target)?;
    }
    rustix::fs::fchmod(target, Mode::from_raw_mode(file.mode))?;
    beneath::set_owner_of_new(target, owner)?;
    Ok(())
}
