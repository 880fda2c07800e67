//! What keeps the visits of one box from looking into each other: each begins in a Landlock domain of its own.
//!
//! All are one user, so without it the kernel would let each open the descriptors, the memory and the environment of every
//! other. A process may look into those of its own domain and of domains made within it. So a visit sees its own
//! children, and the agent and PID 1 see everybody. The domain forbids nothing else: rules say that everything beneath the
//! root stays allowed, and signals go from visit to visit as before.

use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, make_bitflags,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys;

/// A domain has to be about something. The first of these exists in every version; the second is forbidden by any domain
/// that does not allow it, asked or not.
const ABOUT: BitFlags<AccessFs> = make_bitflags!(AccessFs::{MakeBlock | Refer});

/// What each visit's domain is made from.
#[derive(Debug)]
pub(crate) struct Apart(OwnedFd);

impl Apart {
    /// Nothing where the kernel has no Landlock, or does not let us use it.
    pub(crate) fn begin() -> Option<Self> {
        let root = rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(ABOUT);
        let ruleset = ruleset.and_then(Ruleset::create).ok()?;
        let ruleset = ruleset.add_rule(PathBeneath::new(root, ABOUT)).ok()?;
        Option::<OwnedFd>::from(ruleset).map(Apart)
    }

    /// Gives this process, and whoever it starts, a domain that no other has.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        sys::enter_landlock(self.0.as_fd())
    }
}
