//! The plan: everything the jail will do, as data, decided before it starts.
//!
//! The executor writes a plan from a grant; the jail applies it from top to bottom and decides nothing. Paths
//! and words are C strings, so no NUL byte can hide in them, and sources carry the identity of the file that
//! the executor saw, so that a link swapped in between is noticed rather than followed.

use std::ffi::{CStr, CString};

use serde::{Deserialize, Serialize};

use crate::protocol::report::{Protection, ProtectionName, Step};

/// A whole box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub identity: Identity,
    pub hostname: CString,
    pub cgroups: Option<Cgroups>,
    /// What the executor already knows about the protections of this box.
    pub protections: Vec<Protection>,
    pub root: RootKind,
    pub operations: Vec<Operation>,
    pub resource_limits: Vec<ResourceLimit>,
    pub access: Vec<Access>,
    pub unix_sockets: UnixSockets,
    pub watchdog: Watchdog,
    pub terminal: Option<WindowSize>,
    /// The port on its loopback at which the executor answers the box; without one nobody does.
    pub way_out: Option<u16>,
    pub command: Command,
    /// Protections that refuse the box when they cannot be had, beyond those that always do.
    pub required: Vec<ProtectionName>,
    /// Where to stop and wait for the end: crash tests kill a box at each step.
    pub hold_at: Option<Step>,
}

/// Who the box is, inside and outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub privilege: Privilege,
    pub inside_uid: u32,
    pub inside_gid: u32,
    pub host_uid: u32,
    pub host_gid: u32,
}

/// With which rights the jail starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Privilege {
    /// Real root: the box gets the host uid of its user and agent, and sources are opened with root's rights.
    Root,
    /// An ordinary user: the box has that user's uid, and sources are opened from inside the new namespaces.
    Rootless,
}

/// Whether a box may make sockets of the Unix family. Those with a name are reached through the file system: a box that is
/// shown the host's files could talk to whoever listens in one of them, by whatever name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnixSockets {
    Allowed,
    /// Pairs can still be made: nobody else has an end of one.
    Refused,
}

/// Where PID 1 begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootKind {
    /// The operations make a root from nothing, and PID 1 moves into it.
    Own,
    /// PID 1 was born in a copy of the spawner's skeleton, and the operations add what is this box's alone.
    Skeleton,
}

/// One step in making the root file system. `at` is absolute inside the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// The first of all: the root is a small tmpfs.
    TmpfsRoot {
        size: u64,
        inodes: u64,
    },
    /// The first of all: the root is an image, with changes going to a tmpfs of this size.
    OverlayRoot {
        image: Source,
        size: u64,
        inodes: u64,
    },
    Directory {
        at: CString,
        mode: u32,
    },
    Symlink {
        at: CString,
        target: CString,
    },
    File {
        at: CString,
        content: Vec<u8>,
        mode: u32,
    },
    /// A directory of the root that stays writable when the root is sealed.
    Writable {
        at: CString,
        mode: u32,
    },
    /// One memory file system whose directories become writable places.
    Scratch {
        size: u64,
        inodes: u64,
        places: Vec<ScratchPlace>,
    },
    Tmpfs {
        at: CString,
        size: u64,
        inodes: u64,
        mode: u32,
    },
    Bind {
        source: Source,
        at: CString,
        kind: FileKind,
        access: MountAccess,
    },
    /// An entry of a host directory that is shown entry by entry. If it is removed or replaced before the box is made, an
    /// empty directory is mounted in its place, or `/dev/null` for a file.
    Entry {
        source: Source,
        at: CString,
        kind: FileKind,
        access: MountAccess,
    },
    /// A host device node, bound to an empty file.
    Device {
        source: CString,
        at: CString,
    },
    Pts {
        at: CString,
    },
    Proc {
        at: CString,
    },
    /// An existing file or directory hidden under an empty one; what does not exist needs no hiding.
    Mask {
        at: CString,
        cover: Cover,
    },
    /// A directory of the root's own and what lies at a place are shown there together, read-only, and its own names come
    /// first. Nothing may depend on it: where the kernel cannot do that, the place stays as it is.
    Layer {
        own: CString,
        at: CString,
    },
    /// The root itself becomes read-only (mounts on it keep their own access).
    SealRoot,
}

impl Operation {
    /// Where it makes something, unless that is the root or several places.
    pub fn at(&self) -> Option<&CStr> {
        match self {
            Operation::TmpfsRoot { .. }
            | Operation::OverlayRoot { .. }
            | Operation::Scratch { .. }
            | Operation::SealRoot => None,
            Operation::Directory { at, .. }
            | Operation::Symlink { at, .. }
            | Operation::File { at, .. }
            | Operation::Writable { at, .. }
            | Operation::Tmpfs { at, .. }
            | Operation::Bind { at, .. }
            | Operation::Entry { at, .. }
            | Operation::Device { at, .. }
            | Operation::Pts { at }
            | Operation::Proc { at }
            | Operation::Mask { at, .. }
            | Operation::Layer { at, .. } => Some(at),
        }
    }
}

/// What lies over something hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cover {
    /// Over a file: the box's /dev/null.
    Null,
    /// Over a directory: an empty one of the box's own, at this path.
    Directory(CString),
    /// Over a directory: an empty file system.
    FileSystem,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchPlace {
    pub at: CString,
    pub mode: u32,
}

/// A place on the host, and what was there when the executor looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub path: CString,
    pub identity: Option<FileIdentity>,
    /// The host owner whose files the box owns inside (an id-mapped mount); needs root.
    pub owner: Option<Owner>,
}

/// Device and inode: the same pair is the same file while a handle to it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    Directory,
    File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountAccess {
    ReadOnly,
    ReadWrite,
}

/// The box's cgroups: made by the executor, removed by the spawner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    pub version: CgroupVersion,
    pub directories: Vec<CgroupDirectory>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupVersion {
    /// One directory per controller; PID 1 writes itself into each.
    V1,
    /// One directory; PID 1 is born in it.
    V2,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupDirectory {
    pub parent: CString,
    pub name: CString,
    pub settings: Vec<CgroupSetting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSetting {
    pub file: CString,
    pub value: String,
    /// The protection that this value is; others only refine one, and may be missing from a kernel.
    pub protects: Option<ProtectionName>,
}

/// Kernel limits per process, or per user in the box's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    pub resource: Resource,
    pub value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resource {
    CoreSize,
    OpenFiles,
    Processes,
    LockedMemory,
    MessageQueues,
    RealtimePriority,
    Niceness,
    PendingSignals,
}

/// One Landlock rule: what may be done beneath a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    pub beneath: CString,
    pub right: AccessRight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessRight {
    /// Read and execute.
    Read,
    /// Read, execute, and write to files that are there (devices, process files).
    WriteExisting,
    /// One file, which can be read, executed and written to.
    WriteFile,
    /// Everything.
    Write,
}

/// Where no cgroup limits the box's memory, PID 1 adds up what its processes and file systems hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watchdog {
    pub memory_bytes: u64,
    pub file_systems: Vec<CString>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

/// What a box that is made ahead does until its command is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ahead {
    /// PID 1 waits alone.
    Alone,
    /// The plan's command runs already: an interpreter of ours, which waits for code.
    WithInterpreter,
}

/// What is added when it is known: the files that it works on, and itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Completion {
    pub operations: Vec<Operation>,
    pub access: Vec<Access>,
    pub required: Vec<ProtectionName>,
    pub commission: Commission,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Commission {
    Execute(Command),
    /// For the interpreter that waits: what it is told, and where it will go.
    Tell {
        order: Order,
        directory: CString,
    },
}

/// Words for an interpreter, in its own form.
#[derive(Serialize, Deserialize)]
pub struct Order(pub Vec<u8>);

impl std::fmt::Debug for Order {
    /// It holds an environment, whose values are secrets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Order({} bytes)", self.0.len())
    }
}

/// What runs. `argv[0]` is looked up in `search` unless it contains a slash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub argv: Vec<CString>,
    /// `KEY=value` strings, and nothing else of the environment.
    pub environment: Vec<CString>,
    pub search: Vec<CString>,
    pub directory: CString,
}

impl Command {
    /// The same under another name.
    pub(crate) fn named(&self, name: CString) -> Self {
        let mut argv = self.argv.clone();
        if let Some(first) = argv.first_mut() {
            *first = name;
        }
        Command {
            argv,
            environment: self.environment.clone(),
            search: self.search.clone(),
            directory: self.directory.clone(),
        }
    }
}

impl std::fmt::Debug for Command {
    /// Values of the environment are secrets: only their keys are shown.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<_> = self
            .environment
            .iter()
            .map(|entry| {
                let bytes = entry.as_bytes();
                let end = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
                String::from_utf8_lossy(&bytes[..end]).into_owned()
            })
            .collect();
        formatter
            .debug_struct("Command")
            .field("argv", &self.argv)
            .field("environment_keys", &keys)
            .field("search", &self.search)
            .field("directory", &self.directory)
            .finish()
    }
}
