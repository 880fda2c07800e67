//! Staging directories beside the images, and the rename that makes an image visible.
//!
//! A directory that is not an image yet, or no longer, is locked by the process that works on it.
//! The kernel releases the lock when the process ends in any way, so a directory that can be locked
//! is left over and is removed. The process id in its name is for the operator only, since process
//! ids are reused.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};

use super::erase::erase;

const IMPORTING: &str = ".importing-";
const REMOVING: &str = ".removing-";
const LOCK: &str = ".lock";
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
/// Others may enter by name (a box's user must reach its root) but not list it.
const PASSABLE: Mode = Mode::from_raw_mode(0o711);

/// A directory under construction. It is deleted on drop unless it was published.
pub(super) struct Staging {
    images: OwnedFd,
    name: String,
    directory: OwnedFd,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Hidden,
    Published,
}

/// Held while names in the images directory are changed.
pub(super) struct StoreLock {
    _handle: OwnedFd,
}

impl StoreLock {
    pub(super) fn take(images: impl AsFd) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(images, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
        loop {
            match rustix::fs::flock(&handle, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                outcome => return outcome.map(|()| Self { _handle: handle }),
            }
        }
    }
}

impl Staging {
    /// Removes what ended processes left, then creates and locks a new hidden directory.
    pub(super) fn new(images: OwnedFd) -> Result<Self> {
        let _lock = StoreLock::take(&images)?;
        sweep(&images)?;
        let name = new_name(IMPORTING);
        rustix::fs::mkdirat(&images, name.as_str(), Mode::RWXU)?;
        let directory = rustix::fs::openat(&images, name.as_str(), DIRECTORY, Mode::empty())?;
        let staging = Self { images, name, directory, state: State::Hidden };
        rustix::fs::flock(&staging.directory, FlockOperation::NonBlockingLockExclusive)?;
        rustix::fs::fchmod(&staging.directory, PASSABLE)?;
        Ok(staging)
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Makes the directory visible as `name`, durably. EEXIST if the name was taken meanwhile.
    pub(super) fn publish(mut self, name: &str) -> Result<()> {
        // The content first: after a power failure an image is complete or missing.
        rustix::fs::syncfs(&self.directory)?;
        let _lock = StoreLock::take(&self.images)?;
        // Safe, because the sweep needs the store lock, which is held. A box may lock the image at
        // once.
        rustix::fs::flock(&self.directory, FlockOperation::Unlock)?;
        rustix::fs::renameat_with(&self.images, self.name.as_str(), &self.images, name, RenameFlags::NOREPLACE)?;
        self.state = State::Published;
        rustix::fs::fsync(&self.images)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.state == State::Hidden {
            // If this fails, the next import removes it.
            let _ = erase(&self.images, &self.name);
        }
    }
}

/// Deletes the image `name`, whose directory the caller has locked: hides it by one rename, then
/// erases it.
pub(super) fn remove_image(images: &OwnedFd, name: &str, lock: StoreLock) -> Result<()> {
    let hidden = new_name(REMOVING);
    rustix::fs::renameat_with(images, name, images, hidden.as_str(), RenameFlags::NOREPLACE)?;
    rustix::fs::fsync(images)?;
    drop(lock);
    erase(images, &hidden)
}

/// Deletes hidden directories that no process has locked.
fn sweep(images: &OwnedFd) -> Result<()> {
    let mut names = Dir::read_from(images)?;
    while let Some(entry) = names.read() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if !name.starts_with(IMPORTING) && !name.starts_with(REMOVING) {
            continue;
        }
        let Ok(directory) = rustix::fs::openat(images, name, DIRECTORY, Mode::empty()) else {
            continue;
        };
        if rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            erase(images, name)?;
        }
    }
    Ok(())
}

fn new_name(prefix: &str) -> String {
    // RandomState is seeded by the kernel. The name must only be new; mkdir detects a duplicate.
    let random = RandomState::new().build_hasher().finish();
    format!("{prefix}{}-{random:016x}", std::process::id())
}
