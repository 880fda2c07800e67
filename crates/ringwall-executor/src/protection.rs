//! The protections of Docker and gVisor boxes, and the refusal of a box that lacks a required one.
//! PID 1 of a native box checks for itself.

use ringwall_jail::report::{Protection, ProtectionName, ProtectionState};
use ringwall_policy::Grant;

use crate::error::Error;

/// Docker and gVisor give these to every box, or take the privilege away as we request.
pub(crate) const OF_EVERY_BACKEND: [ProtectionName; 9] = [
    ProtectionName::MountNamespace,
    ProtectionName::PidNamespace,
    ProtectionName::NetworkNamespace,
    ProtectionName::IpcNamespace,
    ProtectionName::UtsNamespace,
    ProtectionName::CgroupNamespace,
    ProtectionName::NoCapabilities,
    ProtectionName::NoNewPrivileges,
    ProtectionName::NoExtraGroups,
];

/// Refuses a box without a system call filter, and one that lacks a protection which its grant
/// requires.
pub(crate) fn check(grant: &Grant, protections: &[Protection], backend: &'static str) -> Result<(), Error> {
    let required = grant.effective().require.iter().map(|requirement| protection_of(*requirement));
    let state = |name| protections.iter().find(|protection| protection.name == name);
    let lacks = |name| {
        let why = state(name).and_then(|found| found.why.clone()).unwrap_or_default();
        Err(Error::ProtectionMissing { backend, name, why })
    };
    for name in required {
        if state(name).is_none_or(|found| found.state != ProtectionState::Enforced) {
            return lacks(name);
        }
    }
    match state(ProtectionName::Seccomp) {
        Some(found) if found.state != ProtectionState::NotAvailable => Ok(()),
        _ => lacks(ProtectionName::Seccomp),
    }
}

/// The jail's name of a policy requirement.
pub(crate) fn protection_of(requirement: ringwall_policy::Requirement) -> ProtectionName {
    match requirement {
        ringwall_policy::Requirement::Landlock => ProtectionName::Landlock,
        ringwall_policy::Requirement::Memory => ProtectionName::MemoryLimit,
        ringwall_policy::Requirement::Pids => ProtectionName::PidsLimit,
        ringwall_policy::Requirement::Cpu => ProtectionName::CpuLimit,
        ringwall_policy::Requirement::Io => ProtectionName::IoLimit,
        ringwall_policy::Requirement::OpenFiles => ProtectionName::OpenFiles,
        ringwall_policy::Requirement::EpollWatches => ProtectionName::EpollWatches,
        ringwall_policy::Requirement::InotifyInstances => ProtectionName::InotifyInstances,
        ringwall_policy::Requirement::PendingSignals => ProtectionName::PendingSignals,
        ringwall_policy::Requirement::PipePages => ProtectionName::PipePages,
        ringwall_policy::Requirement::PassedDescriptors => ProtectionName::PassedDescriptors,
        ringwall_policy::Requirement::UserProcesses => ProtectionName::UserProcesses,
    }
}
