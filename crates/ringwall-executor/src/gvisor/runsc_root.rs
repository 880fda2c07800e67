//! The root file system in which `runsc` creates one box. Pure: the operations that the init process
//! applies, in order.
//!
//! Of the host it contains only what a native box has, `runsc` itself and the workspace's
//! directories. Each directory is cloned from an open handle whose identity was checked; no path is
//! looked up after that. The configuration contains the command's environment, which may be secret;
//! like all of this root it is in memory and disappears with the box.

use std::ffi::CString;
use std::path::Path;

use ringwall_jail::agent::AGENT;
use ringwall_jail::plan::{FileKind, MountAccess, Operation, Owner, Source};

use crate::box_layout;
use crate::c_string::literal;
use crate::error::Error;
use crate::host::{Host, SystemKind};
use crate::plan::lower;
use crate::sources::Sources;

/// The path of `runsc` in this root.
pub(super) const RUNSC: &str = "/runsc";
/// The OCI bundle: the directory with `config.json`.
pub(super) const BUNDLE: &str = "/bundle";
/// State files that the commands of `runsc` share.
pub(super) const STATE: &str = "/state";
/// The file in which `runsc create` writes the PID of gVisor's kernel.
pub(super) const KERNEL: &str = "/state/kernel.pid";
/// The root of the box.
pub(super) const BOX: &str = "/box";
/// Directories of `/workspace` that exist empty in every box, as mount points and in place of
/// hidden ones.
pub(super) const MOUNT_POINTS: [&str; 3] = ["inputs", "work", "artifacts"];

/// For links, small texts and the files that `runsc` writes.
const SIZE: u64 = 16 * 1024 * 1024;
const INODES: u64 = 4096;

/// The path in this root of a directory that the box sees at `at`: a project's are below
/// `/project`, a session's is `/workspace`.
pub(super) fn project(at: &str) -> String {
    at.replacen("/workspace/", "/project/", 1)
}

pub(super) fn operations(
    host: &Host,
    kernel_mounts: &[CString],
    sources: &Sources,
    owner: Owner,
    runsc: &Path,
    config: Vec<u8>,
) -> Result<Vec<Operation>, Error> {
    let directory = |at: &str, mode| Operation::Directory { at: literal(at), mode };
    let mut operations = vec![Operation::TmpfsRoot { size: SIZE, inodes: INODES }];
    operations.extend(lower::system(host, kernel_mounts));
    operations.extend(lower::device_nodes());
    operations.extend([
        directory("/proc", 0o555),
        directory("/tmp", 0o1777),
        directory(STATE, 0o700),
        directory(BUNDLE, 0o700),
        Operation::File { at: literal(&format!("{BUNDLE}/config.json")), content: config, mode: 0o600 },
        Operation::Bind {
            source: Source { path: c_path(runsc)?, identity: None, owner: None },
            at: literal(RUNSC),
            kind: FileKind::File,
            access: MountAccess::ReadOnly,
        },
    ]);
    operations.extend(root_of_box(host, owner));
    for place in &sources.project {
        if let Some((opened, access)) = &place.content {
            operations.push(Operation::Bind {
                source: Source { path: opened.path.clone(), identity: Some(opened.identity), owner: None },
                at: literal(&project(place.at)),
                kind: FileKind::Directory,
                access: *access,
            });
        }
    }
    Ok(operations)
}

/// The agent's executable in this root, and a mount point for it in the box.
pub(super) fn agent(program: &Source) -> [Operation; 2] {
    let place = Operation::File { at: literal(&format!("{BOX}{AGENT}")), content: Vec::new(), mode: 0o444 };
    [lower::agent_mount(program), place]
}

/// The box's own root: directories, links, `/etc` files, and a mount point for each mount.
fn root_of_box(host: &Host, owner: Owner) -> Vec<Operation> {
    let inside = |at: &str| literal(&format!("{BOX}{at}"));
    let directory = |at: &str, mode| Operation::Directory { at: inside(at), mode };
    let below = |path: &CString| literal(&format!("{BOX}{}", path.to_string_lossy()));
    let mut operations: Vec<Operation> = ["/proc", "/dev", "/sys", "/tmp", "/var/tmp", box_layout::HOME]
        .map(|at| directory(at, 0o755))
        .into_iter()
        .chain(MOUNT_POINTS.map(|name| directory(&format!("/workspace/{name}"), 0o555)))
        .collect();
    operations.extend(host.system.iter().map(|entry| match &entry.kind {
        SystemKind::Directory => Operation::Directory { at: below(&entry.path), mode: 0o755 },
        SystemKind::Symlink(target) => Operation::Symlink { at: below(&entry.path), target: target.clone() },
    }));
    operations.extend(box_layout::etc_files(owner.uid, owner.gid).into_iter().map(|(at, content)| Operation::File {
        at: inside(at),
        content: content.into_bytes(),
        mode: 0o644,
    }));
    operations.push(Operation::Symlink { at: inside("/etc/os-release"), target: literal("../usr/lib/os-release") });
    operations.extend(host.etc.iter().map(|entry| match entry.kind {
        FileKind::Directory => Operation::Directory { at: below(&entry.path), mode: 0o755 },
        FileKind::File => Operation::File { at: below(&entry.path), content: Vec::new(), mode: 0o644 },
    }));
    operations
}

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Error::NulByte("a path"))
}
