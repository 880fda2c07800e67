//! The root file system: the plan's operations, applied in order inside the new mount namespace.
//!
//! The new root is attached over a host directory that nobody looks at any more, filled, and pivoted into; the
//! host's tree then leaves the namespace as a whole. Sources were opened before, because afterwards there is
//! nothing left to open. Every box pays for every call here, so places are made first and looked at only when
//! they were there already.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::protocol::plan::{Cover, FileKind, MountAccess, Operation, ScratchPlace};
use crate::protocol::report::{Failure, Step};
use crate::setup::mount_target::Places;
use crate::setup::{mounts, mounts::Attributes};

/// Covered by the new root while it is being built. Every system that can start a box has it.
const STAGE: &CStr = c"/usr";
const LOWER: &CStr = c"/usr/lower";
const UPPER: &CStr = c"/usr/upper";
const WORK: &CStr = c"/usr/work";

/// Makes changes to mounts stay in this namespace, and the host's later mounts stay out of it.
pub(crate) fn detach_from_host() -> std::result::Result<(), Failure> {
    rustix::mount::mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|errno| Failure::new(Step::DetachMounts, "", errno))
}

/// Applies all operations and returns the new root. `sources` holds one tree per operation that has a source.
pub(crate) fn build(operations: &[Operation], sources: Vec<OwnedFd>) -> std::result::Result<OwnedFd, Failure> {
    let mut sources = sources.into_iter();
    let mut places: Option<Places> = None;
    for operation in operations {
        let source = if has_source(operation) { sources.next() } else { None };
        let result = match &mut places {
            None => begin(operation, source).map(|root| places = Some(Places::new(root))),
            Some(places) => apply(places, operation, source, STAGE),
        };
        result.map_err(|errno| Failure::new(Step::BuildRoot, subject(operation), errno))?;
    }
    places.map(Places::into_root).ok_or_else(|| Failure::plain(Step::BuildRoot, "/ (the plan has no root)"))
}

/// Applies operations to the root in which this process already stands.
pub(crate) fn extend(operations: &[Operation], sources: Vec<OwnedFd>) -> std::result::Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        rustix::fs::open(c"/", flags, Mode::empty()).map_err(|errno| Failure::new(Step::BuildRoot, "/", errno))?;
    let mut places = Places::new(root);
    let mut sources = sources.into_iter();
    for operation in operations {
        let source = if has_source(operation) { sources.next() } else { None };
        apply(&mut places, operation, source, c"")
            .map_err(|errno| Failure::new(Step::BuildRoot, subject(operation), errno))?;
    }
    Ok(())
}

/// Makes the new root the only one.
pub(crate) fn enter(root: &OwnedFd) -> std::result::Result<(), Failure> {
    let enter = || -> Result<()> {
        rustix::process::fchdir(root)?;
        rustix::process::pivot_root(c".", c".")?;
        // The old root now lies on top of the new one; detaching it leaves the new one alone.
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

/// `stage` is where the root lies as long as it is not this process's own.
fn apply(places: &mut Places, operation: &Operation, source: Option<OwnedFd>, stage: &CStr) -> Result<()> {
    match operation {
        Operation::TmpfsRoot { .. } | Operation::OverlayRoot { .. } => Err(Errno::INVAL),
        Operation::Directory { at, mode } => places.make_directory(at, *mode),
        Operation::Symlink { at, target } => {
            let (parent, name) = places.parent(at)?;
            rustix::fs::symlinkat(target, parent, name)
        }
        Operation::File { at, content, mode } => write_file(places, at, content, *mode),
        Operation::Writable { at, mode } => {
            places.make_directory(at, *mode)?;
            let (parent, name) = places.parent(at)?;
            let itself = mounts::clone_place(parent, name)?;
            places.attach(&itself, at)
        }
        Operation::Scratch { size, inodes, places: wanted } => {
            let scratch = mounts::tmpfs(*size, *inodes, 0o755)?;
            for (number, ScratchPlace { at, mode }) in wanted.iter().enumerate() {
                let name = number.to_string();
                rustix::fs::mkdirat(&scratch, &name, Mode::from_raw_mode(*mode))?;
                places.attach(&mounts::clone_place(scratch.as_fd(), name.as_bytes())?, at)?;
            }
            // Stays open until the end: closing what is not attached waits for every processor.
            std::mem::forget(scratch);
            Ok(())
        }
        Operation::Tmpfs { at, size, inodes, mode } => {
            places.make_directory(at, 0o755)?;
            places.attach(&mounts::tmpfs(*size, *inodes, *mode)?, at)
        }
        Operation::Bind { at, kind, access, .. } => bind(places, source, at, *kind, *access),
        Operation::Entry { at, kind, access, .. } => match bind(places, source, at, *kind, *access) {
            // The kernel attaches no tree whose root was removed meanwhile. The empty mount point stays.
            Err(Errno::NOENT) => Ok(()),
            done => done,
        },
        Operation::Device { at, .. } => {
            places.make_file(at)?;
            places.attach(&source.ok_or(Errno::BADF)?, at)
        }
        Operation::Pts { at } => {
            places.make_directory(at, 0o755)?;
            places.attach(&mounts::pts()?, at)
        }
        Operation::Proc { at } => {
            places.make_directory(at, 0o555)?;
            places.attach(&mounts::proc()?, at)
        }
        Operation::Mask { at, cover } => mask(places, at, cover),
        Operation::Layer { own, at } => {
            // A kernel without overlays, or one on which too many lie on each other already, is no reason to refuse a box.
            let _ = layer(places, stage, own, at);
            Ok(())
        }
        Operation::SealRoot => mounts::restrict(places.root(), Attributes::ReadOnlyRoot),
    }
}

fn bind(places: &mut Places, source: Option<OwnedFd>, at: &CStr, kind: FileKind, access: MountAccess) -> Result<()> {
    let tree = source.ok_or(Errno::BADF)?;
    match kind {
        FileKind::Directory => places.make_directory(at, 0o755)?,
        FileKind::File => places.make_file(at)?,
    }
    let attributes = match access {
        MountAccess::ReadOnly => Attributes::ReadOnlyFiles,
        MountAccess::ReadWrite => Attributes::WritableFiles,
    };
    mounts::restrict(tree.as_fd(), attributes)?;
    places.attach(&tree, at)
}

fn write_file(places: &mut Places, at: &CStr, content: &[u8], mode: u32) -> Result<()> {
    let (parent, name) = places.parent(at)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode));
    let file = match open() {
        // An image may have something under this name, a link included: it goes, unread.
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

/// Hides a file under /dev/null, or a directory under an empty one. Looked for first: a copy of a mount that is then
/// not attached costs a wait for every processor when it is closed.
fn mask(places: &mut Places, at: &CStr, cover: &Cover) -> Result<()> {
    if !is_there(places, at)? {
        return Ok(());
    }
    let mut place = |at| places.parent(at).and_then(|(parent, name)| mounts::clone_place(parent, name));
    let cover = match cover {
        Cover::Null => place(c"/dev/null")?,
        Cover::Directory(empty) => {
            let empty = place(empty)?;
            mounts::restrict(empty.as_fd(), Attributes::ReadOnlyFiles)?;
            empty
        }
        Cover::FileSystem => {
            let empty = mounts::tmpfs(4096, 1, 0o555)?;
            mounts::restrict(empty.as_fd(), Attributes::ReadOnlyFiles)?;
            empty
        }
    };
    match places.attach(&cover, at) {
        // Whoever it belongs to on the host may have removed it since.
        Err(Errno::NOENT | Errno::NOTDIR) if !is_there(places, at)? => Ok(()),
        done => done,
    }
}

fn is_there(places: &mut Places, at: &CStr) -> Result<bool> {
    match places.exists(at) {
        // Where PID 1 cannot go with all its capabilities, the command cannot go without any.
        Err(Errno::ACCESS) => Ok(false),
        known => known,
    }
}

fn layer(places: &mut Places, stage: &CStr, own: &CStr, at: &CStr) -> Result<()> {
    if !places.exists(own)? || !places.exists(at)? {
        return Err(Errno::NOENT);
    }
    let path = |place: &CStr| format!("{}{}", stage.to_string_lossy(), place.to_string_lossy());
    places.attach(&mounts::layers(&format!("{}:{}", path(own), path(at)))?, at)
}

fn subject(operation: &Operation) -> String {
    operation.at().unwrap_or(c"/").to_string_lossy().into_owned()
}
