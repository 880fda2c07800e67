//! The plan: all that the jail does for one box, as data.
//!
//! The executor lowers a grant to a plan. Paths and arguments are C strings, so they contain no NUL
//! byte. A source carries device and inode of the file that the executor saw, so that a file or
//! symlink swapped in afterwards is detected.

use std::ffi::{CStr, CString};

use serde::{Deserialize, Serialize};

use crate::protocol::report::{Protection, ProtectionName, Step};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub identity: Identity,
    pub hostname: CString,
    pub cgroups: Option<Cgroups>,
    /// States that the executor knows in advance, such as a missing kernel feature.
    pub protections: Vec<Protection>,
    pub root: RootKind,
    pub operations: Vec<Operation>,
    pub resource_limits: Vec<ResourceLimit>,
    pub access: Vec<Access>,
    pub unix_sockets: UnixSockets,
    pub watchdog: Watchdog,
    pub terminal: Option<WindowSize>,
    /// Loopback port of the egress proxy inside the box; `None` without network access.
    pub proxy_port: Option<u16>,
    pub command: Command,
    /// Protections without which the box is refused, in addition to the mandatory ones.
    pub required: Vec<ProtectionName>,
    /// Stop at this step until the executor goes away. Crash tests kill a box at each step.
    pub hold_at: Option<Step>,
}

/// User and group id of the box, inside and on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub privilege: Privilege,
    pub inside_uid: u32,
    pub inside_gid: u32,
    pub host_uid: u32,
    pub host_gid: u32,
}

/// Privilege of the server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Privilege {
    /// The box gets a host uid that at most boxes of the same user and agent share. The executor
    /// opens the sources as root.
    Root,
    /// The box has the server's uid. PID 1 opens the sources in its new namespaces.
    Rootless,
}

/// Use of Unix sockets in a box. Neither read-only mounts nor Landlock (up to ABI 6) stop
/// a `connect` to a named socket in a mounted host directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnixSockets {
    Allowed,
    /// `socket(AF_UNIX)` is denied; `socketpair` still works, since it connects to nothing outside.
    Refused,
}

/// The root file system with which PID 1 starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootKind {
    /// PID 1 builds a root from the operations and pivots into it.
    Own,
    /// PID 1 starts in a copy of the spawner's base rootfs; the operations add what differs per
    /// box.
    Base,
}

/// One step of building the root file system. `at` is an absolute path inside the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// First operation: the root is a small tmpfs.
    TmpfsRoot {
        size: u64,
        inodes: u64,
    },
    /// First operation: the root is an image under an overlay; changes go to a tmpfs of this size.
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
    /// A directory that stays writable after [`SealRoot`](Operation::SealRoot).
    Writable {
        at: CString,
        mode: u32,
    },
    /// One tmpfs of which several directories are mounted, each at its own path.
    Scratch {
        size: u64,
        inodes: u64,
        directories: Vec<ScratchDirectory>,
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
    /// Like `Bind`, for an entry of a host directory whose entries are mounted one by one. If the
    /// entry was removed or replaced since the plan was made, an empty directory, or `/dev/null`
    /// for a file, is mounted instead.
    Entry {
        source: Source,
        at: CString,
        kind: FileKind,
        access: MountAccess,
    },
    /// A device node of the host, bind-mounted over an empty file.
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
    /// Covers an existing file or directory. A missing path is not an error.
    Mask {
        at: CString,
        cover: Cover,
    },
    /// Mounts a read-only overlay at `at` that shows the present content of `at` with `own` on top.
    /// Best effort: if the kernel refuses the overlay, `at` stays unchanged.
    Layer {
        own: CString,
        at: CString,
    },
    /// Remounts the root read-only. Other mounts keep their access.
    SealRoot,
}

impl Operation {
    /// The path that is created; `None` for the root itself and for several paths.
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

/// The object mounted over a masked path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cover {
    /// For a file: the box's /dev/null.
    Null,
    /// For a directory: an empty directory of the box, at this path.
    Directory(CString),
    /// For a directory: a new empty tmpfs.
    FileSystem,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchDirectory {
    pub at: CString,
    pub mode: u32,
}

/// A host path, with the identity of the file that the executor saw there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub path: CString,
    pub identity: Option<FileIdentity>,
    /// Host owner whose files appear as owned by the box's user (id-mapped mount); needs root.
    pub owner: Option<Owner>,
}

/// Device and inode number. An inode number is not reused while a handle to the file is open.
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

/// Cgroups of the box. The executor creates them; the executor or the spawner removes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    pub version: CgroupVersion,
    pub directories: Vec<CgroupDirectory>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupVersion {
    /// One directory per controller. PID 1 writes itself into each.
    V1,
    /// One directory. PID 1 is cloned into it (`CLONE_INTO_CGROUP`).
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
    /// The protection that this value implements. `None` for a refinement that a kernel may lack.
    pub protects: Option<ProtectionName>,
}

/// An rlimit, per process or per user in the box's user namespace.
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

/// A Landlock rule: the rights beneath a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    pub beneath: CString,
    pub right: AccessRight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessRight {
    /// Read and execute.
    Read,
    /// Read, execute, and write to existing files (devices, /proc).
    WriteExisting,
    /// Read, execute and write one file.
    WriteFile,
    /// All rights.
    Write,
}

/// The memory limit that PID 1 enforces itself, by adding up what no cgroup limits.
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

/// The program that runs in a warm box until its command is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmKind {
    /// PID 1 alone; any command can follow.
    Plain,
    /// Also the plan's command: an interpreter that waits for code which `python3 -c` would run.
    Python,
}

/// Completes a warm box: the files of the command and the command itself.
#[derive(Debug, Serialize, Deserialize)]
pub struct Completion {
    pub operations: Vec<Operation>,
    pub access: Vec<Access>,
    pub required: Vec<ProtectionName>,
    pub assignment: Assignment,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Assignment {
    Execute(Command),
    /// For a waiting interpreter: its input, and the directory that it changes to.
    RunCode {
        input: InterpreterInput,
        directory: CString,
    },
}

/// Input of a waiting interpreter, in the interpreter's own format.
#[derive(Serialize, Deserialize)]
pub struct InterpreterInput(pub Vec<u8>);

impl std::fmt::Debug for InterpreterInput {
    /// Omits the content, which includes environment values (secrets).
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "InterpreterInput({} bytes)", self.0.len())
    }
}

/// The program to run. `argv[0]` is looked up in `search` unless it contains a slash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub argv: Vec<CString>,
    /// Complete environment, as `KEY=value`.
    pub environment: Vec<CString>,
    pub search: Vec<CString>,
    pub directory: CString,
}

impl Command {
    /// The same command with another `argv[0]`.
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
    /// Shows environment keys only, because values are secrets.
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
