//! The skills of an agent: folders in `skills/` of its workspace, each with a `SKILL.md` at its
//! root.
//!
//! An uploaded ZIP is untrusted. It is checked ([`archive`]), unpacked into a staging directory
//! ([`unpack`]) and then exchanged with the old skills by rename ([`install`]), so that a reader
//! sees the old or the new version of a skill.
//! [`list`] and [`heal`] work on `skills/` itself, where a box may create, rename or replace any name at any time. They
//! therefore open everything beneath a directory handle and never follow a symlink.

mod archive;
mod entry_name;
mod heal;
mod install;
mod list;
mod metadata;
mod name;
mod unpack;

pub use archive::{ArchiveError, ArchiveLimits};
pub use heal::HealOutcome;
pub use install::{DeletedSkill, SkillArchive, StagedSkills};
pub use list::SkillSummary;
pub use name::SkillName;

pub(crate) use archive::CheckedZip;
pub(crate) use install::{StagingDir, resume_install};

/// Checks the directory of an uploaded zip, for the fuzz targets.
pub(crate) fn check_zip(file: std::fs::File, limits: ArchiveLimits) {
    let _ = CheckedZip::read(file, limits);
}

/// The path of a zip entry, for the fuzz targets.
pub(crate) fn entry_path(name: &[u8], is_utf8: bool) -> Option<String> {
    let encoding = if is_utf8 { entry_name::NameEncoding::Utf8 } else { entry_name::NameEncoding::Undeclared };
    entry_name::parse_entry_name(name, encoding).ok().map(|(path, _)| path.as_str().to_owned())
}

/// Reads the metadata of a `SKILL.md`, for the fuzz targets.
pub(crate) fn check_metadata(text: &str) {
    let _ = metadata::SkillMetadata::parse(text).warnings("folder");
}
