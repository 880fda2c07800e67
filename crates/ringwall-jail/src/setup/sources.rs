//! Clones the host's mounts for a box, checks their identity and maps their owner.
//!
//! As root the executor does this in the host's mount namespace. Rootless, PID 1 does it in its own
//! namespaces, where an ordinary user may clone mounts.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, Result};

use crate::protocol::plan::{FileKind, Operation, Owner, Source};
use crate::protocol::report::{Failure, Step};
use crate::setup::mounts;
use crate::sys::{self, Fork};

/// Returns a user namespace for an id-mapped mount that shows this owner's files as the box's.
pub type Mapping<'a> = dyn FnMut(Owner) -> Result<OwnedFd> + 'a;

/// Opens one detached tree per operation that has a source, in the plan's order.
pub fn open(operations: &[Operation], mapping: &mut Mapping<'_>) -> std::result::Result<Vec<OwnedFd>, Failure> {
    operations
        .iter()
        .filter_map(|operation| match operation {
            Operation::OverlayRoot { image: source, .. } | Operation::Bind { source, .. } => {
                Some(open_source(source, mapping))
            }
            Operation::Entry { source, kind, .. } => Some(open_entry(source, *kind, mapping)),
            Operation::Device { source, .. } => Some(open_device(source)),
            _ => None,
        })
        .collect()
}

fn open_source(source: &Source, mapping: &mut Mapping<'_>) -> std::result::Result<OwnedFd, Failure> {
    let name = source.path.to_string_lossy();
    let fail = |errno| Failure::new(Step::OpenSources, name.clone(), errno);
    let tree = mounts::clone_tree(&source.path).map_err(fail)?;
    if let Some(expected) = source.identity
        && !mounts::is_file(tree.as_fd(), expected).map_err(fail)?
    {
        return Err(Failure::plain(Step::OpenSources, format!("{name}: it was replaced while the box was being made")));
    }
    map_owner(&tree, source, mapping)?;
    Ok(tree)
}

fn map_owner(tree: &OwnedFd, source: &Source, mapping: &mut Mapping<'_>) -> std::result::Result<(), Failure> {
    let Some(owner) = source.owner else { return Ok(()) };
    let name = source.path.to_string_lossy();
    let owners = mapping(owner).map_err(|errno| Failure::new(Step::OpenSources, name.clone(), errno))?;
    sys::set_mount_attributes(tree.as_fd(), sys::MountScope::Recursive, 0, Some(owners.as_fd())).map_err(|errno| {
        Failure::new(Step::OpenSources, format!("{name} with its owner mapped to the box's user"), errno)
    })
}

/// A missing or replaced entry is mounted empty, because host programs rewrite files of /etc at any
/// time.
fn open_entry(source: &Source, kind: FileKind, mapping: &mut Mapping<'_>) -> std::result::Result<OwnedFd, Failure> {
    let fail = |errno| Failure::new(Step::OpenSources, source.path.to_string_lossy(), errno);
    match mounts::clone_tree(&source.path) {
        Ok(tree) if source.identity.is_none_or(|expected| mounts::is_file(tree.as_fd(), expected) == Ok(true)) => {
            map_owner(&tree, source, mapping)?;
            return Ok(tree);
        }
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
        Err(errno) => return Err(fail(errno)),
    }
    match kind {
        FileKind::Directory => mounts::tmpfs(4096, 1, 0o555).map_err(fail),
        FileKind::File => open_device(&c"/dev/null".into()),
    }
}

fn open_device(source: &CString) -> std::result::Result<OwnedFd, Failure> {
    mounts::clone_tree(source).map_err(|errno| Failure::new(Step::OpenSources, source.to_string_lossy(), errno))
}

/// A user namespace that maps `owner` to the box's host user, for an id-mapped mount. The process
/// that keeps it alive until it is opened does nothing else.
pub fn mapping(owner: Owner, host: Owner) -> Result<OwnedFd> {
    let spawner = rustix::process::getpid();
    let pid = match sys::clone_into_namespaces(libc::CLONE_NEWUSER as u64, None)? {
        Fork::Child => hold_namespace(spawner),
        Fork::Parent(child) => child,
    };
    let made = || -> Result<OwnedFd> {
        let directory = format!("/proc/{}", pid.as_raw_nonzero());
        write_file(&format!("{directory}/uid_map"), &format!("{} {} 1", owner.uid, host.uid))?;
        write_file(&format!("{directory}/gid_map"), &format!("{} {} 1", owner.gid, host.gid))?;
        rustix::fs::open(
            format!("{directory}/ns/user"),
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
    };
    let namespace = made();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())?;
    namespace
}

/// Sleeps until `spawner` kills this process or ends.
pub(crate) fn hold_namespace(spawner: rustix::process::Pid) -> ! {
    let armed = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    while armed.is_ok() && rustix::process::getppid() == Some(spawner) {
        rustix::event::pause();
    }
    sys::exit_now(1)
}

/// Writes a kernel file in one call; most of them do not accept partial writes.
pub(crate) fn write_file(path: &str, content: &str) -> Result<()> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    let written = rustix::io::write(&file, content.as_bytes())?;
    if written == content.len() { Ok(()) } else { Err(Errno::IO) }
}
