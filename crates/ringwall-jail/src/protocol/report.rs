//! Messages from the jail: progress, protections, and how the command ended.
//!
//! Reports are small messages on the box's control socket. A [`Failure`] names step, subject and
//! errno, and is sent only if no instruction of the command has run.

use std::ffi::CString;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Steps of making a box. The executor does [`MakeCgroups`](Step::MakeCgroups) and, as root,
/// [`OpenSources`](Step::OpenSources), which can overlap with the first steps of PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    MapIdentity,
    MakeNamespaces,
    ReadPlan,
    OpenSources,
    MakeCgroups,
    TakeIdentity,
    DetachMounts,
    BuildRoot,
    EnterRoot,
    SetHostname,
    OpenTerminal,
    JoinCgroups,
    LimitResources,
    RestrictFiles,
    EnterNetwork,
    DropPrivileges,
    FilterCalls,
    VerifyPrivileges,
    StartCommand,
}

impl Step {
    pub const ALL: [Step; 19] = [
        Step::MapIdentity,
        Step::MakeNamespaces,
        Step::ReadPlan,
        Step::OpenSources,
        Step::MakeCgroups,
        Step::TakeIdentity,
        Step::DetachMounts,
        Step::BuildRoot,
        Step::EnterRoot,
        Step::SetHostname,
        Step::OpenTerminal,
        Step::JoinCgroups,
        Step::LimitResources,
        Step::RestrictFiles,
        Step::EnterNetwork,
        Step::DropPrivileges,
        Step::FilterCalls,
        Step::VerifyPrivileges,
        Step::StartCommand,
    ];

    /// The step as the object of "could not …".
    pub fn phrase(self) -> &'static str {
        match self {
            Step::ReadPlan => "read the plan",
            Step::MakeCgroups => "make the cgroup",
            Step::OpenSources => "open",
            Step::MakeNamespaces => "make the namespaces",
            Step::MapIdentity => "map the user id",
            Step::JoinCgroups => "join the cgroup",
            Step::TakeIdentity => "take on the box's user id",
            Step::DetachMounts => "separate the mounts from the host's",
            Step::BuildRoot => "build the root file system at",
            Step::EnterRoot => "enter the new root",
            Step::SetHostname => "set the host name",
            Step::OpenTerminal => "open a terminal",
            Step::EnterNetwork => "enter the network namespace",
            Step::LimitResources => "set the resource limit",
            Step::RestrictFiles => "restrict file access with Landlock",
            Step::DropPrivileges => "drop privileges",
            Step::FilterCalls => "install the system call filter",
            Step::VerifyPrivileges => "verify that no privilege is left:",
            Step::StartCommand => "start the command in",
        }
    }
}

/// A step that failed, so that the box was not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub step: Step,
    /// Path, limit or protection that the step was working on.
    pub subject: String,
    /// Error number of the failed call; 0 if no call failed.
    pub errno: i32,
}

impl Failure {
    pub fn new(step: Step, subject: impl Into<String>, errno: Errno) -> Self {
        Failure { step, subject: subject.into(), errno: errno.raw_os_error() }
    }

    /// A failure without an errno.
    pub fn plain(step: Step, subject: impl Into<String>) -> Self {
        Failure { step, subject: subject.into(), errno: 0 }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "could not {}", self.step.phrase())?;
        if !self.subject.is_empty() {
            write!(formatter, " {}", self.subject)?;
        }
        if self.errno != 0 {
            write!(formatter, ": {}", std::io::Error::from_raw_os_error(self.errno))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Every protection that a box can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectionName {
    UserNamespace,
    MountNamespace,
    PidNamespace,
    NetworkNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    NoCapabilities,
    NoNewPrivileges,
    NoExtraGroups,
    Seccomp,
    Landlock,
    ResourceLimits,
    MemoryLimit,
    PidsLimit,
    CpuLimit,
    IoLimit,
    /// The part of fs.file-max that a box can hold, by descriptors or without them (`mmap`,
    /// `shmat`).
    OpenFiles,
    /// This and the following five are kernel counters per user id, not per box. Enforced means
    /// that what the box uses is charged to no other user id.
    EpollWatches,
    InotifyInstances,
    PendingSignals,
    PipePages,
    /// Descriptors sent over Unix sockets and not yet received.
    PassedDescriptors,
    /// RLIMIT_NPROC of the user who runs Ringwall.
    UserProcesses,
    /// Session boxes only: no process of the box can inspect the memory, environment or descriptors
    /// of another session process.
    CommandsApart,
}

impl ProtectionName {
    /// All that apply to every box.
    pub const ALL: [Self; 24] = [
        Self::UserNamespace,
        Self::MountNamespace,
        Self::PidNamespace,
        Self::NetworkNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::CgroupNamespace,
        Self::NoCapabilities,
        Self::NoNewPrivileges,
        Self::NoExtraGroups,
        Self::Seccomp,
        Self::Landlock,
        Self::ResourceLimits,
        Self::MemoryLimit,
        Self::PidsLimit,
        Self::CpuLimit,
        Self::IoLimit,
        Self::OpenFiles,
        Self::EpollWatches,
        Self::InotifyInstances,
        Self::PendingSignals,
        Self::PipePages,
        Self::PassedDescriptors,
        Self::UserProcesses,
    ];

    /// Name in reports, records and tables.
    pub const fn key(self) -> &'static str {
        match self {
            Self::UserNamespace => "user_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::NetworkNamespace => "network_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::UtsNamespace => "uts_namespace",
            Self::CgroupNamespace => "cgroup_namespace",
            Self::NoCapabilities => "no_capabilities",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::NoExtraGroups => "no_extra_groups",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::ResourceLimits => "resource_limits",
            Self::MemoryLimit => "memory_limit",
            Self::PidsLimit => "pids_limit",
            Self::CpuLimit => "cpu_limit",
            Self::IoLimit => "io_limit",
            Self::OpenFiles => "open_files",
            Self::EpollWatches => "epoll_watches",
            Self::InotifyInstances => "inotify_instances",
            Self::PendingSignals => "pending_signals",
            Self::PipePages => "pipe_pages",
            Self::PassedDescriptors => "passed_descriptors",
            Self::UserProcesses => "user_processes",
            Self::CommandsApart => "commands_apart",
        }
    }
}

/// State of a protection, with the reason if it is not fully enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    pub name: ProtectionName,
    pub state: ProtectionState,
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectionState {
    Enforced,
    Partial,
    NotAvailable,
}

impl Protection {
    pub fn enforced(name: ProtectionName) -> Self {
        Protection { name, state: ProtectionState::Enforced, why: None }
    }

    pub fn partial(name: ProtectionName, why: impl Into<String>) -> Self {
        Protection { name, state: ProtectionState::Partial, why: Some(why.into()) }
    }

    pub fn not_available(name: ProtectionName, why: impl Into<String>) -> Self {
        Protection { name, state: ProtectionState::NotAvailable, why: Some(why.into()) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Exited(i32),
    Signalled(i32),
    /// PID 1 ended the box because it exceeded its memory limit.
    OverMemory,
}

/// A message from PID 1 (or the entrypoint shim) to the executor.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The box was not made; no instruction of the command has run.
    Failed(Failure),
    /// The box stopped at the plan's `hold_at`.
    Holding(Step),
    /// Descriptor: the master side of the terminal.
    Terminal,
    /// Descriptor: the listening socket of the egress proxy in the box.
    ProxySocket,
    /// A warm box is ready for its command. Descriptor: pidfd of PID 1.
    Waiting,
    /// All protections are in force and the command starts. Descriptor: pidfd of PID 1, unless
    /// [`Waiting`](Report::Waiting) carried it.
    Started { protections: Vec<Protection>, steps: Vec<StepTime> },
    /// execve failed; `tried` is the path that failed, or the name if no directory has it.
    NotExecuted { tried: CString, errno: i32 },
    /// The command has ended and PID 1 is the only process left.
    Ended { ending: Ending, cpu_microseconds: u64, peak_memory_bytes: u64, oom_kills: u64 },
}

/// Duration of a step. Steps of executor and PID 1 overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    pub step: Step,
    pub microseconds: u32,
}

/// A message to PID 1 after the plan. There is none to end the box: the executor kills PID 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlMessage {
    /// Send this signal to every process of the box.
    Signal(i32),
}
