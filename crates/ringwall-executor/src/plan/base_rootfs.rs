//! Operations for the root of a box before its files are known: the base rootfs of the spawner and
//! the root of a warm box. Both have empty mount points for everything that a box may be shown.
//! Pure, like `lower`.

use std::ffi::CString;

use ringwall_jail::agent::AGENT;
use ringwall_jail::plan::{Cover, FileKind, MountAccess, Operation, RootKind, Source};

use crate::box_layout::WORKSPACE;
use crate::c_string::literal;
use crate::host::{Host, python};
use crate::plan::lower::{
    AGENT_MOUNTS, BYTES_PER_INODE, EMPTY, MIB, MOUNT_POINTS, PROJECT, ROOT_INODES, device_nodes, etc_files, os_release,
    own_mounts, processes, system,
};

/// The base rootfs, which the spawner makes for itself. Its /proc is the host's: the spawner needs
/// it to map ids, and the kernel lets a box mount its own /proc only where one is visible. PID 1
/// covers it. Masks over kernel file systems are not part of it.
pub(crate) fn base_rootfs(host: &Host) -> Vec<Operation> {
    let mut operations = shared_root(host, &[], MIB, ROOT_INODES);
    // Mount point of the agent of a session box.
    operations.push(Operation::File { at: literal(AGENT), content: Vec::new(), mode: 0o444 });
    operations.push(Operation::Bind {
        source: Source { path: literal("/proc"), identity: None, owner: None },
        at: literal("/proc"),
        kind: FileKind::Directory,
        access: MountAccess::ReadWrite,
    });
    operations.push(Operation::SealRoot);
    operations
}

/// A root with the host's system and mount points for everything that a box may get.
fn shared_root(host: &Host, kernel_mounts: &[CString], size: u64, inodes: u64) -> Vec<Operation> {
    let directory = |at: &str| Operation::Directory { at: literal(at), mode: 0o755 };
    let mut operations = vec![Operation::TmpfsRoot { size, inodes }];
    operations.extend(system(host, kernel_mounts));
    operations.extend(etc_files());
    operations.push(os_release());
    operations.extend(device_nodes());
    operations.extend(MOUNT_POINTS.map(|(at, _)| directory(at)));
    operations.extend(["/dev/pts", EMPTY].map(directory));
    operations.extend(PROJECT.map(directory));
    operations.extend(AGENT_MOUNTS.map(directory));
    operations.extend(python::link_directory(host.python3_alone.as_ref()));
    operations
}

/// The operations of a warm box before its files are known: beside the base rootfs, or the whole root.
pub(crate) fn warm_root(host: &Host, kernel_mounts: &[CString], scratch: u64, root: RootKind) -> Vec<Operation> {
    let directories = MOUNT_POINTS.into_iter().filter(|(at, _)| *at != WORKSPACE);
    match root {
        RootKind::Base => own_mounts(directories.collect(), scratch, host.privilege),
        RootKind::Own => {
            let mut operations = shared_root(host, kernel_mounts, scratch, ROOT_INODES + scratch / BYTES_PER_INODE);
            operations.push(Operation::Pts { at: literal("/dev/pts") });
            operations.extend(processes(host.privilege, &Cover::Directory(literal(EMPTY))));
            operations.extend(directories.map(|(at, mode)| Operation::Writable { at: literal(at), mode }));
            operations.push(Operation::SealRoot);
            operations
        }
    }
}
