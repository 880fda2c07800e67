//! What becomes of one path of a skill when its baseline changes. Pure.
//!
//! Overlay wins: what somebody changed stays, what they deleted stays away. Everything else follows the baseline.

/// What the index remembers of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was never the baseline's here.
    Unknown,
    /// A sync brought it, and was done.
    Settled,
    /// A sync was about to bring, change or remove it when the server was killed.
    Unsettled,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Here {
    Absent,
    /// What the new version has there already.
    Wanted,
    /// A copy of an earlier version, as it was copied.
    Copy,
    /// Somebody's own.
    Own,
}

/// Whether the new version has the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    File,
    Nothing,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Add,
    Replace,
    Remove,
    /// It stays as it is, and is remembered as the baseline's.
    Remember,
    /// It stays as it is, and is remembered no longer.
    Forget,
}

pub(crate) fn decide(known: Known, here: Here, target: Target) -> Act {
    match (target, here, known) {
        (Target::File, Here::Absent, Known::Unknown | Known::Unsettled) => Act::Add,
        (Target::File, Here::Copy, _) => Act::Replace,
        // Deleted, already so, or somebody's own, which a later deletion must not bring the baseline's back for.
        (Target::File, Here::Absent | Here::Wanted | Here::Own, _) => Act::Remember,
        (Target::Nothing, Here::Copy | Here::Wanted, Known::Settled | Known::Unsettled) => Act::Remove,
        // A deletion outlives the baseline's own.
        (Target::Nothing, Here::Absent, Known::Settled) => Act::Remember,
        (Target::Nothing, _, _) => Act::Forget,
    }
}
