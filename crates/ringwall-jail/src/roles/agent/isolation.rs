//! Keeps session processes from inspecting each other: each starts in a Landlock domain of its own.
//!
//! All have the same uid, so otherwise the kernel would let each read the memory, environment and
//! descriptors of the others. Landlock allows that only within the own domain and domains nested in
//! it: a session process can inspect its own children, and the agent and PID 1 can inspect all.
//! Nothing else is restricted: the rules allow both handled rights beneath the root, and signals
//! are not scoped.

use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, make_bitflags,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys;

/// A ruleset must handle a right. `MakeBlock` exists in every ABI. `Refer` is denied by every
/// domain that does not allow it, even one that does not handle it.
const HANDLED: BitFlags<AccessFs> = make_bitflags!(AccessFs::{MakeBlock | Refer});

/// The ruleset from which each process's domain is made.
#[derive(Debug)]
pub(crate) struct ProcessIsolation(OwnedFd);

impl ProcessIsolation {
    /// `None` if the kernel has no Landlock or denies its use.
    pub(crate) fn prepare() -> Option<Self> {
        let root = rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(HANDLED);
        let ruleset = ruleset.and_then(Ruleset::create).ok()?;
        let ruleset = ruleset.add_rule(PathBeneath::new(root, HANDLED)).ok()?;
        Option::<OwnedFd>::from(ruleset).map(ProcessIsolation)
    }

    /// Puts this process and its children into a new domain.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        sys::enter_landlock(self.0.as_fd())
    }
}
