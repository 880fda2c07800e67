//! The skills of an agent: folders in `skills/` of its workspace, each with a `SKILL.md` at its
//! root.
//!
//! An uploaded ZIP is untrusted. It is checked ([`archive`]), unpacked into a staging directory
//! ([`unpack`]) and then exchanged with the old skills by rename ([`install`]), so that a reader
//! sees the old or the new version of a skill.
//! [`list`] and [`heal`] work on `skills/` itself, where a box may create, rename or replace any
//! name at any time. They therefore open everything beneath a directory handle and never follow a
//! symlink.

pub(crate) mod archive;
pub(crate) mod entry_name;
mod heal;
mod install;
mod list;
pub(crate) mod metadata;
mod name;
mod unpack;

pub use archive::{ArchiveError, ArchiveLimits};
pub use heal::HealOutcome;
pub use install::{SkillArchive, StagedSkills};
pub use list::SkillSummary;
pub use name::SkillName;

pub(crate) use archive::CheckedZip;
pub(crate) use install::{StagingDir, resume_install};
