//! What the jail says back: how far it came, what holds, and how it ended.
//!
//! Reports are small messages on one socket. A failure names its step, its subject and the kernel's error, and
//! always comes before any instruction of the command has run.

use std::ffi::CString;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The steps in which a box is made. The executor's own (opening sources, making cgroups) run beside PID 1's first.
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

    /// The step in words, for "could not …".
    pub fn words(self) -> &'static str {
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

/// Why a box could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub step: Step,
    /// What the step was working on: a path, a limit, a protection.
    pub subject: String,
    /// The kernel's error number, or 0 where no call failed.
    pub errno: i32,
}

impl Failure {
    pub fn new(step: Step, subject: impl Into<String>, errno: Errno) -> Self {
        Failure { step, subject: subject.into(), errno: errno.raw_os_error() }
    }

    /// A failure that no system call reported.
    pub fn plain(step: Step, subject: impl Into<String>) -> Self {
        Failure { step, subject: subject.into(), errno: 0 }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "could not {}", self.step.words())?;
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
    /// The part of fs.file-max that a box can hold, by descriptors or without them (`mmap`, `shmat`).
    OpenFiles,
    /// This and the following five are kernel counters that belong to a user id, not to a box. Enforced means that no
    /// other user id is charged for what the box takes.
    EpollWatches,
    InotifyInstances,
    PendingSignals,
    PipePages,
    /// Descriptors sent over Unix sockets and not received yet.
    PassedDescriptors,
    /// RLIMIT_NPROC of the user who runs Ringwall.
    UserProcesses,
    /// Of a box that stays: none of its commands can look into another.
    CommandsApart,
}

impl ProtectionName {
    /// Those of every box.
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

    /// What reports, records and tables call it.
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

/// Whether a protection holds, and if not wholly, why.
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

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Exited(i32),
    Signalled(i32),
    /// PID 1 ended the box because it held more memory than allowed.
    OverMemory,
}

/// A message from the jail.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// Nothing of the command has run, and nothing will.
    Failed(Failure),
    /// Stopped at `hold_at`.
    Holding(Step),
    /// The terminal's other end comes with this message.
    Terminal,
    /// The socket at which the box asks for connections comes with this message.
    WayOut,
    /// A box that was made ahead is ready, and waits for its command. A handle to PID 1 comes with this message.
    Waiting,
    /// Everything is in force and the command starts now. A handle to PID 1 comes with this message, unless it came
    /// before.
    Started { protections: Vec<Protection>, steps: Vec<StepTime> },
    /// The kernel would not run the command; `tried` is the last path.
    NotExecuted { tried: CString, errno: i32 },
    /// The command has ended and no process of the box is left but PID 1.
    Ended { ending: Ending, cpu_microseconds: u64, peak_memory_bytes: u64, oom_kills: u64 },
}

/// How long a step took. Steps of different processes overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    pub step: Step,
    pub microseconds: u32,
}

/// A message to PID 1, after its plan. (To be ended it is killed.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Pass this signal to every process of the box.
    Signal(i32),
}
