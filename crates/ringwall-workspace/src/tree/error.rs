//! Errors of the files API. The contract fixes most of their texts.
//!
//! Paths are shown as the caller gave them. Errors that only the operator can resolve are not here
//! but in [`crate::Error`].

use crate::relative_path::PathProblem;
use crate::skills::ArchiveError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    #[error("Security Error: Path must start with 'skills/' or 'files/'. Current path: {0}")]
    WrongStart(String),
    #[error("Security Error: Access out of scope. Path: {0}")]
    OutOfScope(String),
    /// Has the same text as `OutOfScope` but is an invalid request, not a security violation.
    #[error("Security Error: Access out of scope. Path: {0}")]
    NulByte(String),
    #[error(
        "Security Error: 'SKILL.md' is a system reserved file. You can only create/edit it at the root of a skill \
         (e.g., skills/my_skill/SKILL.md)."
    )]
    Reserved,
    #[error("The path {0}.")]
    Malformed(PathProblem),
    #[error("Path not found: {0}")]
    Missing(String),
    #[error("Skill not found: {0}")]
    SkillMissing(String),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("Path is not a regular file: {0}")]
    Irregular(String),
    #[error("Path is a directory: {0}")]
    IsDirectory(String),
    #[error("Path leads through something that is not a directory: {0}")]
    BelowFile(String),
    #[error("File is not UTF-8 text: {0}. Download it instead.")]
    NotText(String),
    #[error("Too large: more than {max} bytes of {path}. Read it in pages, or download it.")]
    TooLarge { path: String, max: u64 },
    #[error("Server busy: Too many long texts are being read. Read {0} in pages, download it, or try again.")]
    Crowded(String),
    #[error("Too large: more than {max} files in {path}. List a directory in it instead.")]
    TooMany { path: String, max: usize },
    #[error("Too many skills: more than {max} folders in skills. Delete some of them.")]
    TooManySkills { max: usize },
    #[error(
        "Edit Mismatch: '{old}' found {found} times, but expected {expected} times. Please refine your search string."
    )]
    Mismatch { old: String, found: u64, expected: u64 },
    #[error("Security Error: 'old_string' cannot be empty for replacement operation.")]
    EmptyOld,
    #[error("Lines are counted from 1: '{key}' must be at least 1.")]
    CountFromOne { key: &'static str },
    #[error("The range is backwards: 'end' is less than 'start'.")]
    Backwards,
    #[error("The range starts past the end of the file: there is no line {line}, nor one before it.")]
    PastEnd { line: u64 },
}

/// The kind of error; each API maps it to its own status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesErrorKind {
    Invalid,
    Security,
    Missing,
    Mismatch,
    TooLarge,
    Busy,
}

impl FilesError {
    pub fn kind(&self) -> FilesErrorKind {
        match self {
            FilesError::WrongStart(_) | FilesError::OutOfScope(_) | FilesError::Reserved | FilesError::EmptyOld => {
                FilesErrorKind::Security
            }
            FilesError::NulByte(_)
            | FilesError::Malformed(_)
            | FilesError::Irregular(_)
            | FilesError::IsDirectory(_)
            | FilesError::BelowFile(_)
            | FilesError::NotText(_)
            | FilesError::CountFromOne { .. }
            | FilesError::Backwards
            | FilesError::PastEnd { .. } => FilesErrorKind::Invalid,
            FilesError::Mismatch { .. } => FilesErrorKind::Mismatch,
            FilesError::TooLarge { .. } | FilesError::TooMany { .. } | FilesError::TooManySkills { .. } => {
                FilesErrorKind::TooLarge
            }
            FilesError::Crowded(_) => FilesErrorKind::Busy,
            FilesError::Missing(_) | FilesError::SkillMissing(_) => FilesErrorKind::Missing,
            FilesError::Archive(error) => error.kind(),
        }
    }
}
