//! The second wall: Landlock rules on files, and kernel limits on each process.
//!
//! Landlock repeats what the mounts already say, in another part of the kernel: should a file outside the box
//! become reachable through a descriptor or a link, opening it still fails. Where the kernel has no Landlock
//! the box says so, and refuses if it was asked to.

use std::ffi::CStr;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Rlimit;

use crate::plan::{Access, AccessRight, Resource, ResourceLimit};
use crate::report::{Failure, Protection, ProtectionName, ProtectionState, Step};
use crate::sys;

/// The newest version whose rights we know; an older kernel enforces what it has.
const KNOWN: ABI = ABI::V6;

/// Restricts this process and its children to the given paths.
pub(crate) fn files(rules: &[Access]) -> std::result::Result<Protection, Failure> {
    let version = match sys::landlock_version() {
        Ok(version) => version,
        Err(errno) => {
            let why = match errno {
                Errno::NOSYS => "the kernel was built without Landlock",
                Errno::OPNOTSUPP => "Landlock is disabled at boot",
                _ => "the kernel refuses Landlock",
            };
            return Ok(Protection::not_available(ProtectionName::Landlock, why));
        }
    };
    let fail = |subject: &str| Failure::plain(Step::RestrictFiles, subject);
    let everything = AccessFs::from_all(KNOWN);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(everything)
        .and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)))
        .and_then(Ruleset::create)
        .map_err(|error| fail(&format!("({error})")))?;
    for rule in rules {
        let path = open(&rule.beneath)?;
        ruleset = ruleset
            .add_rule(PathBeneath::new(path, rights(rule.right)))
            .map_err(|error| fail(&format!("for {} ({error})", rule.beneath.to_string_lossy())))?;
    }
    let status = ruleset.restrict_self().map_err(|error| fail(&format!("({error})")))?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Protection::enforced(ProtectionName::Landlock),
        RulesetStatus::PartiallyEnforced => Protection::partial(
            ProtectionName::Landlock,
            format!("the kernel has version {version} of Landlock; some newer rights are not covered"),
        ),
        RulesetStatus::NotEnforced => {
            Protection::not_available(ProtectionName::Landlock, "the kernel enforced no rule")
        }
    })
}

fn open(path: &CStr) -> std::result::Result<std::os::fd::OwnedFd, Failure> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Failure::new(Step::RestrictFiles, format!("for {}", path.to_string_lossy()), errno))
}

fn rights(right: AccessRight) -> BitFlags<AccessFs> {
    let read = AccessFs::from_read(KNOWN);
    match right {
        AccessRight::Read => read,
        AccessRight::WriteExisting => read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev,
        AccessRight::WriteFile => AccessFs::from_file(KNOWN),
        AccessRight::Write => AccessFs::from_all(KNOWN),
    }
}

/// Sets the limits, never above what the caller itself is allowed.
pub(crate) fn resources(limits: &[ResourceLimit]) -> std::result::Result<(), Failure> {
    for limit in limits {
        let resource = match limit.resource {
            Resource::CoreSize => rustix::process::Resource::Core,
            Resource::OpenFiles => rustix::process::Resource::Nofile,
            Resource::Processes => rustix::process::Resource::Nproc,
            Resource::LockedMemory => rustix::process::Resource::Memlock,
            Resource::MessageQueues => rustix::process::Resource::Msgqueue,
            Resource::RealtimePriority => rustix::process::Resource::Rtprio,
            Resource::Niceness => rustix::process::Resource::Nice,
            Resource::PendingSignals => rustix::process::Resource::Sigpending,
        };
        let own = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let value = Some(limit.value.min(own));
        rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value })
            .map_err(|errno| Failure::new(Step::LimitResources, format!("{:?}", limit.resource), errno))?;
    }
    Ok(())
}

/// Refuses the box when a protection that the plan insists on is not there.
pub fn require(required: &[ProtectionName], protections: &[Protection]) -> std::result::Result<(), Failure> {
    for required in required {
        // An older Landlock still guards every file; a limit that is only partly there does not limit.
        let lacking = |protection: &&Protection| {
            protection.name == *required
                && match protection.state {
                    ProtectionState::Enforced => false,
                    ProtectionState::Partial => protection.name != ProtectionName::Landlock,
                    ProtectionState::NotAvailable => true,
                }
        };
        if let Some(protection) = protections.iter().find(lacking) {
            let why = protection.why.as_deref().unwrap_or_default();
            let step = match required {
                ProtectionName::Landlock => Step::RestrictFiles,
                _ => Step::MakeCgroups,
            };
            return Err(Failure::plain(step, format!("(required by the policy): {why}")));
        }
    }
    Ok(())
}
