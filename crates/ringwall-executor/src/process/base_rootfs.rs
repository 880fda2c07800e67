//! The base rootfs: the part of the root that all boxes on the host's system share, given to the
//! spawner once.
//!
//! The spawner clones PID 1 with a new mount namespace, which copies the base rootfs in the same
//! system call; that saves a quarter of the work of a box. Only a server as root has one: its
//! spawner can have mounts of its own. If the kernel cannot do this, or files of the host were
//! replaced since, boxes are made without it.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringwall_jail::plan::{FileKind, Operation, Privilege};
use ringwall_jail::{Reply, Request, wire};
use rustix::io::Errno;

use crate::error::{Error, talk};
use crate::host;
use crate::host::Host;
use crate::plan::base_rootfs;
use crate::plan::lower::{BaseRoot, masks};
use crate::process::spawner::{TIMEOUT, receive_answer};

#[derive(Debug)]
pub(crate) struct BaseRootfs {
    /// All operations except the masks over kernel file systems, which are read anew for each
    /// spawner.
    operations: Vec<Operation>,
    /// Files of the host that updates replace, such as `ld.so.cache`.
    files: Vec<(CString, Stamp)>,
}

/// Device, inode and change time.
type Stamp = Option<(u64, u64, i64)>;

impl BaseRootfs {
    /// `None` for rootless boxes.
    pub(crate) fn of(host: &Host) -> Option<Self> {
        if host.privilege != Privilege::Root {
            return None;
        }
        let files = host.etc.iter().filter(|entry| entry.kind == FileKind::File);
        Some(BaseRootfs {
            operations: base_rootfs::base_rootfs(host),
            files: files.map(|entry| (entry.path.clone(), stamp(&entry.path))).collect(),
        })
    }

    /// Sends it to a newly started spawner.
    pub(crate) fn offer(&self, requests: &OwnedFd) -> Result<BaseRoot, Error> {
        let mut no_owners = |_| Err(Errno::INVAL);
        let mut operations = self.operations.clone();
        operations.extend(masks(&host::kernel_mounts()?));
        let Ok(trees) = ringwall_jail::sources::open(&operations, &mut no_owners) else { return Ok(BaseRoot::Host) };
        let operations = wire::pack(&operations).map_err(talk)?;
        let (ours, theirs) = wire::pair().map_err(talk)?;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![theirs.as_fd(), operations.as_fd()];
        descriptors.extend(trees.iter().map(AsFd::as_fd));
        wire::send(requests, &Request::BaseRootfs, &descriptors).map_err(talk)?;
        drop(theirs);
        match receive_answer(&ours) {
            Ok(Some((Reply::Done, _))) => Ok(BaseRoot::BaseRootfs),
            Ok(Some((Reply::Failed(_), _))) => Ok(BaseRoot::Host),
            Ok(None) => Err(Error::JailDied),
            Err(Errno::TIMEDOUT) => Err(Error::NoAnswer { from: "the process that makes boxes", timeout: TIMEOUT }),
            Err(errno) => Err(talk(errno)),
        }
    }

    /// True if the host still has the files that the base rootfs shows.
    pub(crate) fn is_current(&self) -> bool {
        self.files.iter().all(|(path, known)| stamp(path) == *known)
    }
}

fn stamp(path: &CString) -> Stamp {
    let status = rustix::fs::stat(path).ok()?;
    Some((status.st_dev, status.st_ino, status.st_mtime))
}
