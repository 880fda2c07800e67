//! The skills of an agent: folders in `skills/` of its workspace, each with a `SKILL.md` at its root.
//!
//! They come as zips, which are hostile: an archive is judged whole, unpacked beside, and only then swapped in, so that
//! whoever looks finds the old skill or the new one. What a box does to `skills/` meanwhile is its right, and nothing here
//! follows a link that it plants.
//!
//! Reading order: the nouns (`name`, `refusal`), a zip (`archive_end`, `entry_name`, `archive`, `unpack`), its way in
//! (`staged`, `swap`), then what a skill says of itself (`front_matter`, `rules`, `heal`, `list`) and its end (`delete`).

mod name;
mod refusal;

mod archive;
mod archive_end;
mod entry_name;
mod unpack;

mod staged;
mod swap;

mod front_matter;
mod heal;
mod list;
mod rules;

mod delete;

pub use archive::ArchiveLimits;
pub use delete::DeletedSkill;
pub use heal::Healing;
pub use list::SkillSummary;
pub use name::SkillName;
pub use refusal::ArchiveRefusal;
pub use staged::{PackedSkills, StagedSkills};

pub(crate) use archive::Archive;
pub(crate) use staged::{Staged, UNFINISHED, resume, unnamed_file};
