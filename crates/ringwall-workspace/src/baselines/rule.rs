//! Decides what a sync does with one path of a skill. Pure.
//!
//! A file that the user changed stays, and one that the user deleted stays deleted. Everything else
//! follows the baseline.

/// The entry of a path in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// The baseline never had this path here.
    Unknown,
    /// The path was handled by a complete sync.
    Settled,
    /// A sync that intended to add, change or remove it was interrupted.
    Unsettled,
}

/// The file at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Here {
    Absent,
    /// Equal to the new version.
    Wanted,
    /// Equal to a copy of an earlier version.
    Copy,
    /// The user's own.
    Own,
}

/// The path in the new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    File,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Add,
    Replace,
    Remove,
    /// Leave the file as it is and record the path as one of the baseline.
    Remember,
    /// Leave the file as it is and drop the path from the index.
    Forget,
}

pub(crate) fn decide(known: Known, here: Here, target: Target) -> Act {
    match (target, here, known) {
        (Target::File, Here::Absent, Known::Unknown | Known::Unsettled) => Act::Add,
        (Target::File, Here::Copy, _) => Act::Replace,
        // Deleted by the user, up to date, or the user's own. It is recorded, so that the
        // baseline's file does not come back when the user deletes the own one.
        (Target::File, Here::Absent | Here::Wanted | Here::Own, _) => Act::Remember,
        (Target::Nothing, Here::Copy | Here::Wanted, Known::Settled | Known::Unsettled) => Act::Remove,
        // Stays recorded, so that the user's deletion still counts if a later version has the path
        // again.
        (Target::Nothing, Here::Absent, Known::Settled) => Act::Remember,
        (Target::Nothing, _, _) => Act::Forget,
    }
}
