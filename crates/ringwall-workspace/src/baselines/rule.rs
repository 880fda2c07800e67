//! Decides what a sync does with one path of a skill. Pure.
//!
//! A file that the user changed stays, and one that the user deleted stays deleted. Everything else
//! follows the baseline.

/// The entry of a path in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexEntry {
    /// The baseline never had this path here.
    Unknown,
    /// The path was handled by a complete sync.
    Settled,
    /// A sync that intended to add, change or remove it was interrupted.
    Unsettled,
}

/// The file at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalFile {
    Absent,
    /// Equal to the new version.
    UpToDate,
    /// Equal to a copy of an earlier version.
    Copy,
    /// The user's own.
    Own,
}

/// The path in the new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewVersion {
    File,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Add,
    Replace,
    Remove,
    /// Leave the file as it is and record the path as one of the baseline.
    Remember,
    /// Leave the file as it is and drop the path from the index.
    Forget,
}

pub(crate) fn decide(recorded: IndexEntry, local: LocalFile, new: NewVersion) -> Action {
    match (new, local, recorded) {
        (NewVersion::File, LocalFile::Absent, IndexEntry::Unknown | IndexEntry::Unsettled) => Action::Add,
        (NewVersion::File, LocalFile::Copy, _) => Action::Replace,
        // Deleted by the user, up to date, or the user's own. It is recorded, so that the
        // baseline's file does not come back when the user deletes the own one.
        (NewVersion::File, LocalFile::Absent | LocalFile::UpToDate | LocalFile::Own, _) => Action::Remember,
        (NewVersion::Nothing, LocalFile::Copy | LocalFile::UpToDate, IndexEntry::Settled | IndexEntry::Unsettled) => {
            Action::Remove
        }
        // Stays recorded, so that the user's deletion still counts if a later version has the path
        // again.
        (NewVersion::Nothing, LocalFile::Absent, IndexEntry::Settled) => Action::Remember,
        (NewVersion::Nothing, _, _) => Action::Forget,
    }
}
