//! Why an uploaded archive is not taken. A refusal is said before anything of a workspace was changed.
//!
//! The first two are the contract's own sentences. What they quote was decoded and checked, or is escaped and cut.

use crate::skills::SkillName;
use crate::tree::RefusalKind;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveRefusal {
    #[error("Validation Error: No valid skill directory found in ZIP.")]
    NoSkill,
    #[error("Validation Error: Skill [{0}] is missing required 'SKILL.md' at its root.")]
    NoSkillFile(SkillName),

    #[error("Validation Error: {0} lies beside the skill directories; a ZIP has nothing but directories at its top.")]
    Stray(String),
    #[error("Validation Error: The file is not a ZIP archive that can be read: {0}.")]
    Malformed(String),
    #[error("Validation Error: The name {given} in the ZIP {why}.")]
    Name { given: String, why: String },
    #[error("Validation Error: {0} is in the ZIP twice, or is both a file and a directory.")]
    Collision(String),
    #[error("Validation Error: {0} in the ZIP is a link; a skill has files and directories only.")]
    Link(String),
    #[error("Validation Error: {0} in the ZIP is neither a file nor a directory.")]
    Special(String),
    #[error("Validation Error: {0} in the ZIP is encrypted; upload it without a password.")]
    Encrypted(String),
    #[error("Validation Error: {name} in the ZIP is compressed by method {method}; only store and deflate are read.")]
    Method { name: String, method: String },
    #[error("Validation Error: {name} in the ZIP is damaged: {why}.")]
    Damaged { name: String, why: String },

    #[error("Validation Error: The ZIP has more than {0} entries.")]
    Entries(u64),
    #[error("Validation Error: The ZIP unpacks to more than {0} bytes.")]
    Bytes(u64),
    #[error("Validation Error: The ZIP unpacks to more than {0} times its size.")]
    Ratio(u64),
}

impl ArchiveRefusal {
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::NoSkill
            | Self::NoSkillFile(_)
            | Self::Stray(_)
            | Self::Malformed(_)
            | Self::Name { .. }
            | Self::Collision(_)
            | Self::Link(_)
            | Self::Special(_)
            | Self::Encrypted(_)
            | Self::Method { .. }
            | Self::Damaged { .. } => RefusalKind::Invalid,
            Self::Entries(_) | Self::Bytes(_) | Self::Ratio(_) => RefusalKind::TooLarge,
        }
    }
}
