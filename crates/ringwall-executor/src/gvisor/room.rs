//! The room in which `runsc` makes one box. Pure: the operations that the warden applies, in their order.
//!
//! It holds nothing of the host but what a native box has, `runsc` itself and the project's directories, each cloned from
//! an open handle and compared with what was judged: no path is looked up after that. The configuration holds the
//! command's environment, which may be secret; like the whole room it is in memory and gone with the box.

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

/// `runsc`, wherever the host has it.
pub(super) const RUNSC: &str = "/runsc";
/// The directory that `runsc` is told to find its configuration in.
pub(super) const BUNDLE: &str = "/bundle";
/// Where `runsc` keeps what its commands tell one another.
pub(super) const STATE: &str = "/state";
/// Where it writes the number of gVisor's kernel.
pub(super) const KERNEL: &str = "/state/kernel.pid";
/// The root of the box.
pub(super) const BOX: &str = "/box";
/// What is empty where a box may not look, and where nothing is mounted otherwise.
pub(super) const PLACES: [&str; 3] = ["inputs", "work", "artifacts"];

/// The room's own files: links, small texts, what `runsc` writes.
const SIZE: u64 = 16 * 1024 * 1024;
const INODES: u64 = 4096;

/// Where in the room a directory of the workspace is, by where the box sees it: a project's are beside each other, and a
/// session's is the whole.
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

/// The agent's program in the room, and a place for it in the box.
pub(super) fn agent(program: &Source) -> [Operation; 2] {
    let place = Operation::File { at: literal(&format!("{BOX}{AGENT}")), content: Vec::new(), mode: 0o444 };
    [lower::agents_place(program), place]
}

/// What of the box's root is no mount, and a place for each mount.
fn root_of_box(host: &Host, owner: Owner) -> Vec<Operation> {
    let inside = |at: &str| literal(&format!("{BOX}{at}"));
    let directory = |at: &str, mode| Operation::Directory { at: inside(at), mode };
    let below = |path: &CString| literal(&format!("{BOX}{}", path.to_string_lossy()));
    let mut operations: Vec<Operation> = ["/proc", "/dev", "/sys", "/tmp", "/var/tmp", box_layout::HOME]
        .map(|at| directory(at, 0o755))
        .into_iter()
        .chain(PLACES.map(|name| directory(&format!("/workspace/{name}"), 0o555)))
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
