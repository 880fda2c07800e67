//! Putting one directory in the place of another in one step, and taking that back.
//!
//! The place is in `skills/`, where a box may make and remove the same name at any moment; whatever it put there, a link
//! or a file, is what comes out. A box that is quicker every time is not raced for ever.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::RenameFlags;
use rustix::io::{Errno, Result};

use crate::fs::beneath::seize_directory;

const TRIES: u32 = 100;

/// What a swap did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// Nothing was there before.
    Placed,
    /// What was there before has the new one's old name.
    Exchanged,
}

/// Moves `name` from one directory to the other, whose own of that name comes back, if it has one.
pub(crate) fn swap(from: &OwnedFd, to: impl AsFd, name: &str) -> Result<Swapped> {
    for _ in 0..TRIES {
        match exchange(from, &to, name) {
            Ok(()) => return Ok(Swapped::Exchanged),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        match rustix::fs::renameat_with(from, name, &to, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Swapped::Placed),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

/// Takes a swap back.
pub(crate) fn undo(swapped: Swapped, from: &OwnedFd, to: impl AsFd, name: &str) -> Result<()> {
    match swapped {
        Swapped::Placed => rustix::fs::renameat_with(&to, name, from, name, RenameFlags::NOREPLACE),
        Swapped::Exchanged => exchange(from, to, name),
    }
}

fn exchange(from: &OwnedFd, to: impl AsFd, name: &str) -> Result<()> {
    let exchange = || rustix::fs::renameat_with(from, name, &to, name, RenameFlags::EXCHANGE);
    match exchange() {
        // A directory that moves must be writable itself, and a box may have closed its own.
        Err(Errno::ACCESS) => seize_directory(&to, name).and_then(|_| exchange()),
        outcome => outcome,
    }
}
