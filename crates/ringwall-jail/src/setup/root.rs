//! Builds the root file system from the plan's operations, inside the new mount namespace.
//!
//! The new root is attached over /usr, filled, and pivoted into; then the host's tree is detached
//! as a whole. Sources were opened before, since the host's paths are gone afterwards. To save
//! system calls, targets are created without a lookup first and checked only on EEXIST.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::protocol::plan::{Cover, FileKind, MountAccess, Operation, ScratchDirectory};
use crate::protocol::report::{Failure, Step};
use crate::setup::mount_target::MountTargets;
use crate::setup::{mounts, mounts::Attributes};

/// Mount point of the new root while it is built. Every host has this directory.
const STAGE: &CStr = c"/usr";
const LOWER: &CStr = c"/usr/lower";
const UPPER: &CStr = c"/usr/upper";
const WORK: &CStr = c"/usr/work";

/// Stops mount propagation between this namespace and the host, in both directions.
pub(crate) fn detach_from_host() -> std::result::Result<(), Failure> {
    rustix::mount::mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|errno| Failure::new(Step::DetachMounts, "", errno))
}

/// Applies all operations and returns the new root. `sources` holds one tree per operation with a
/// source, in the same order.
pub(crate) fn build(operations: &[Operation], sources: Vec<OwnedFd>) -> std::result::Result<OwnedFd, Failure> {
    let mut sources = sources.into_iter();
    let mut targets: Option<MountTargets> = None;
    for operation in operations {
        let source = if has_source(operation) { sources.next() } else { None };
        let result = match &mut targets {
            None => begin(operation, source).map(|root| targets = Some(MountTargets::new(root))),
            Some(targets) => apply(targets, operation, source, STAGE),
        };
        result.map_err(|errno| Failure::new(Step::BuildRoot, subject(operation), errno))?;
    }
    targets.map(MountTargets::into_root).ok_or_else(|| Failure::plain(Step::BuildRoot, "/ (the plan has no root)"))
}

/// Applies operations to the current root of this process.
pub(crate) fn extend(operations: &[Operation], sources: Vec<OwnedFd>) -> std::result::Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        rustix::fs::open(c"/", flags, Mode::empty()).map_err(|errno| Failure::new(Step::BuildRoot, "/", errno))?;
    let mut targets = MountTargets::new(root);
    let mut sources = sources.into_iter();
    for operation in operations {
        let source = if has_source(operation) { sources.next() } else { None };
        apply(&mut targets, operation, source, c"")
            .map_err(|errno| Failure::new(Step::BuildRoot, subject(operation), errno))?;
    }
    Ok(())
}

/// Makes the new root the only one.
pub(crate) fn enter(root: &OwnedFd) -> std::result::Result<(), Failure> {
    let enter = || -> Result<()> {
        rustix::process::fchdir(root)?;
        rustix::process::pivot_root(c".", c".")?;
        // pivot_root(".", ".") leaves the old root mounted over the new one; detaching it uncovers
        // the new.
        rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
        rustix::process::chdir(c"/")
    };
    enter().map_err(|errno| Failure::new(Step::EnterRoot, "", errno))
}

fn has_source(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::OverlayRoot { .. } | Operation::Bind { .. } | Operation::Entry { .. } | Operation::Device { .. }
    )
}

fn begin(operation: &Operation, source: Option<OwnedFd>) -> Result<OwnedFd> {
    let stage = rustix::fs::open(STAGE, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match operation {
        Operation::TmpfsRoot { size, inodes } => {
            let root = mounts::tmpfs(*size, *inodes, 0o755)?;
            mounts::attach(root.as_fd(), stage.as_fd(), b"")?;
            Ok(root)
        }
        Operation::OverlayRoot { size, inodes, .. } => {
            let image = source.ok_or(Errno::BADF)?;
            let changes = mounts::tmpfs(*size, *inodes, 0o755)?;
            mounts::attach(changes.as_fd(), stage.as_fd(), b"")?;
            for directory in [c"lower", c"upper", c"work", c"root"] {
                rustix::fs::mkdirat(&changes, directory, Mode::from_raw_mode(0o755))?;
            }
            mounts::attach(image.as_fd(), changes.as_fd(), b"lower")?;
            let root = mounts::overlay(LOWER, UPPER, WORK)?;
            mounts::attach(root.as_fd(), changes.as_fd(), b"root")?;
            Ok(root)
        }
        _ => Err(Errno::INVAL),
    }
}

/// `stage` is the path prefix of the root; empty if it is the root of this process.
fn apply(targets: &mut MountTargets, operation: &Operation, source: Option<OwnedFd>, stage: &CStr) -> Result<()> {
    match operation {
        Operation::TmpfsRoot { .. } | Operation::OverlayRoot { .. } => Err(Errno::INVAL),
        Operation::Directory { at, mode } => targets.make_directory(at, *mode),
        Operation::Symlink { at, target } => {
            let (parent, name) = targets.parent(at)?;
            rustix::fs::symlinkat(target, parent, name)
        }
        Operation::File { at, content, mode } => write_file(targets, at, content, *mode),
        Operation::Writable { at, mode } => {
            targets.make_directory(at, *mode)?;
            let (parent, name) = targets.parent(at)?;
            let itself = mounts::clone_at(parent, name)?;
            targets.attach(&itself, at)
        }
        Operation::Scratch { size, inodes, directories } => {
            let scratch = mounts::tmpfs(*size, *inodes, 0o755)?;
            for (number, ScratchDirectory { at, mode }) in directories.iter().enumerate() {
                let name = number.to_string();
                rustix::fs::mkdirat(&scratch, &name, Mode::from_raw_mode(*mode))?;
                targets.attach(&mounts::clone_at(scratch.as_fd(), name.as_bytes())?, at)?;
            }
            // Closing a detached mount waits for an RCU grace period. The kernel closes it when PID
            // 1 ends.
            std::mem::forget(scratch);
            Ok(())
        }
        Operation::Tmpfs { at, size, inodes, mode } => {
            targets.make_directory(at, 0o755)?;
            targets.attach(&mounts::tmpfs(*size, *inodes, *mode)?, at)
        }
        Operation::Bind { at, kind, access, .. } => bind(targets, source, at, *kind, *access),
        Operation::Entry { at, kind, access, .. } => match bind(targets, source, at, *kind, *access) {
            // The kernel refuses to attach a tree whose root was deleted meanwhile; the empty mount
            // point stays.
            Err(Errno::NOENT) => Ok(()),
            done => done,
        },
        Operation::Device { at, .. } => {
            targets.make_file(at)?;
            targets.attach(&source.ok_or(Errno::BADF)?, at)
        }
        Operation::Pts { at } => {
            targets.make_directory(at, 0o755)?;
            targets.attach(&mounts::pts()?, at)
        }
        Operation::Proc { at } => {
            targets.make_directory(at, 0o555)?;
            targets.attach(&mounts::proc()?, at)
        }
        Operation::Mask { at, cover } => mask(targets, at, cover),
        Operation::Layer { own, at } => {
            // Fails without overlayfs, or if the stacking limit of file systems is reached.
            let _ = layer(targets, stage, own, at);
            Ok(())
        }
        Operation::SealRoot => mounts::restrict(targets.root(), Attributes::ReadOnlyRoot),
    }
}

fn bind(
    targets: &mut MountTargets,
    source: Option<OwnedFd>,
    at: &CStr,
    kind: FileKind,
    access: MountAccess,
) -> Result<()> {
    let tree = source.ok_or(Errno::BADF)?;
    match kind {
        FileKind::Directory => targets.make_directory(at, 0o755)?,
        FileKind::File => targets.make_file(at)?,
    }
    let attributes = match access {
        MountAccess::ReadOnly => Attributes::ReadOnlyFiles,
        MountAccess::ReadWrite => Attributes::WritableFiles,
    };
    mounts::restrict(tree.as_fd(), attributes)?;
    targets.attach(&tree, at)
}

fn write_file(targets: &mut MountTargets, at: &CStr, content: &[u8], mode: u32) -> Result<()> {
    let (parent, name) = targets.parent(at)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode));
    let file = match open() {
        // An image may contain a file or symlink of this name. It is removed without being
        // followed.
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            open()?
        }
        other => other?,
    };
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Covers a file or directory. It is looked up first, because closing a cloned mount that was not
/// attached waits for an RCU grace period.
fn mask(targets: &mut MountTargets, at: &CStr, cover: &Cover) -> Result<()> {
    if !is_there(targets, at)? {
        return Ok(());
    }
    let mut clone = |at| targets.parent(at).and_then(|(parent, name)| mounts::clone_at(parent, name));
    let cover = match cover {
        Cover::Null => clone(c"/dev/null")?,
        Cover::Directory(empty) => {
            let empty = clone(empty)?;
            mounts::restrict(empty.as_fd(), Attributes::ReadOnlyFiles)?;
            empty
        }
        Cover::FileSystem => {
            let empty = mounts::tmpfs(4096, 1, 0o555)?;
            mounts::restrict(empty.as_fd(), Attributes::ReadOnlyFiles)?;
            empty
        }
    };
    match targets.attach(&cover, at) {
        // A host process may have removed it since.
        Err(Errno::NOENT | Errno::NOTDIR) if !is_there(targets, at)? => Ok(()),
        done => done,
    }
}

fn is_there(targets: &mut MountTargets, at: &CStr) -> Result<bool> {
    match targets.exists(at) {
        // A directory that PID 1 cannot search with all its capabilities, the command cannot search
        // either.
        Err(Errno::ACCESS) => Ok(false),
        known => known,
    }
}

fn layer(targets: &mut MountTargets, stage: &CStr, own: &CStr, at: &CStr) -> Result<()> {
    if !targets.exists(own)? || !targets.exists(at)? {
        return Err(Errno::NOENT);
    }
    let path = |at: &CStr| format!("{}{}", stage.to_string_lossy(), at.to_string_lossy());
    targets.attach(&mounts::layers(&format!("{}:{}", path(own), path(at)))?, at)
}

fn subject(operation: &Operation) -> String {
    operation.at().unwrap_or(c"/").to_string_lossy().into_owned()
}
