//! Landlock rules on files, rlimits, and the check of required protections.
//!
//! Landlock repeats what the mounts enforce, in another part of the kernel: if a file outside the
//! box becomes reachable through a descriptor or a symlink, opening it still fails. A kernel
//! without Landlock is reported, and refuses the box if the plan requires Landlock.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Rlimit;

use crate::protocol::plan::{Access, AccessRight, Resource, ResourceLimit};
use crate::protocol::report::{Failure, Protection, ProtectionName, ProtectionState, Step};
use crate::sys;

/// The newest Landlock ABI whose rights are used. Older kernels enforce the rights that they know.
const KNOWN: ABI = ABI::V6;

/// Restricts this process and its children to the given paths.
pub(crate) fn files(rules: &[Access]) -> std::result::Result<Protection, Failure> {
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(KNOWN));
    match ruleset.and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN))).and_then(Ruleset::create) {
        Ok(ruleset) => FileRules { ruleset, scopes: RulesetStatus::FullyEnforced }.with(rules)?.enforce(),
        Err(error) => Err(failed(&error)),
    }
}

/// Landlock for a warm box, in two parts. The scopes (signals, abstract sockets) apply from the
/// start, to PID 1 and its interpreter in one domain: in separate domains PID 1 could not signal
/// the interpreter. The file rules are completed when the command is known; then PID 1 and the
/// interpreter restrict themselves by the same ruleset.
pub(crate) struct FileRules {
    ruleset: RulesetCreated,
    scopes: RulesetStatus,
}

impl FileRules {
    /// Applies the scopes to this process and its children, and creates an empty ruleset for files.
    pub(crate) fn new() -> std::result::Result<Self, Failure> {
        let compatible = || Ruleset::default().set_compatibility(CompatLevel::BestEffort);
        let scopes = compatible().scope(Scope::from_all(KNOWN)).and_then(Ruleset::create);
        let scopes = scopes.and_then(RulesetCreated::restrict_self).map_err(|error| failed(&error))?.ruleset;
        let ruleset = compatible().handle_access(AccessFs::from_all(KNOWN)).and_then(Ruleset::create);
        Ok(FileRules { ruleset: ruleset.map_err(|error| failed(&error))?, scopes })
    }

    /// The ruleset as a descriptor for another process; it also sees rules that are added later.
    /// `None` without Landlock.
    pub(crate) fn share(&self) -> std::result::Result<Option<OwnedFd>, Failure> {
        let shared =
            self.ruleset.try_clone().map_err(|error| Failure::plain(Step::RestrictFiles, format!("({error})")))?;
        Ok(shared.into())
    }

    pub(crate) fn with(self, rules: &[Access]) -> std::result::Result<Self, Failure> {
        let FileRules { mut ruleset, scopes } = self;
        for rule in rules {
            let path = open(&rule.beneath)?;
            ruleset = ruleset.add_rule(PathBeneath::new(path, rights(rule.right))).map_err(|error| {
                Failure::plain(Step::RestrictFiles, format!("for {} ({error})", rule.beneath.to_string_lossy()))
            })?;
        }
        Ok(FileRules { ruleset, scopes })
    }

    /// Restricts this process and returns the resulting protection.
    pub(crate) fn enforce(self) -> std::result::Result<Protection, Failure> {
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
        let status = self.ruleset.restrict_self().map_err(|error| failed(&error))?;
        Ok(match (status.ruleset, self.scopes) {
            (RulesetStatus::FullyEnforced, RulesetStatus::FullyEnforced) => {
                Protection::enforced(ProtectionName::Landlock)
            }
            (RulesetStatus::NotEnforced, _) => {
                Protection::not_available(ProtectionName::Landlock, "the kernel enforced no rule")
            }
            (RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced, _) => Protection::partial(
                ProtectionName::Landlock,
                format!("the kernel has version {version} of Landlock; some newer rights are not covered"),
            ),
        })
    }
}

fn failed(error: &RulesetError) -> Failure {
    Failure::plain(Step::RestrictFiles, format!("({error})"))
}

fn open(path: &CStr) -> std::result::Result<OwnedFd, Failure> {
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

/// Sets the rlimits, capped by the hard limits of this process.
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

/// Raises a hard core size limit of 0 to 1 for this process and its children, so that boxes can
/// have a limit of 1. Needs CAP_SYS_RESOURCE in the initial user namespace; without it boxes report
/// the missing limit (`missing_core_limit`).
pub fn allow_core_limit() {
    let resource = rustix::process::Resource::Core;
    let Rlimit { current, maximum } = rustix::process::getrlimit(resource);
    if maximum == Some(0) {
        let _ = rustix::process::setrlimit(resource, Rlimit { current, maximum: Some(1) });
    }
}

/// Returns whether this process may give its children a core size limit of 1.
pub fn has_core_limit() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Core).maximum != Some(0)
}

/// At a core size limit of 0 the kernel still starts a piped core handler, which runs outside the
/// box. PID 1 is in a user namespace and cannot raise a hard limit of 0 to 1.
pub(crate) fn missing_core_limit(protections: &[Protection]) -> Option<Protection> {
    let is_reported = protections.iter().any(|known| known.name == ProtectionName::ResourceLimits);
    (!has_core_limit() && !is_reported).then(|| {
        Protection::partial(
            ProtectionName::ResourceLimits,
            "the hard core size limit is 0, so a crash starts the host's piped core handler, if it has one; start \
             Ringwall with a hard limit of at least 1 (LimitCORE=1), or as root with CAP_SYS_RESOURCE",
        )
    })
}

/// Refuses the box if a required protection is missing.
pub fn require(required: &[ProtectionName], protections: &[Protection]) -> std::result::Result<(), Failure> {
    for required in required {
        // Partial Landlock still covers every file, with fewer rights. A partial limit is no limit.
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
                ProtectionName::OpenFiles
                | ProtectionName::EpollWatches
                | ProtectionName::InotifyInstances
                | ProtectionName::PendingSignals
                | ProtectionName::PipePages
                | ProtectionName::PassedDescriptors
                | ProtectionName::UserProcesses => Step::LimitResources,
                _ => Step::MakeCgroups,
            };
            let subject = match step {
                Step::LimitResources => format!("{} (required by the policy): {why}", required.key()),
                _ => format!("(required by the policy): {why}"),
            };
            return Err(Failure::plain(step, subject));
        }
    }
    Ok(())
}
