//! The files of an agent, `files/` and `skills/` of its workspace, and those of a session, as an API reads and changes them beside the boxes.
//!
//! A box may do anything to these directories at any moment, and the locks of a server do not hold it. So every name
//! is hostile: it is looked up anew beneath the section's handle, reads follow only links that stay within the tree,
//! and writes follow none. What is written lies ready among the staged before it gets its name.
//!
//! Reading order: what a caller may name (`path`, `refusal`), how it is found (`open`, `find`, `walk`), what can be read of
//! it (`list`, `lines`, `memory`, `read`, `download`), how it is changed (`change`, `write`, `edit`,
//! `range_edit`, `delete`).

mod path;
mod refusal;

mod find;
mod open;
mod walk;

mod download;
mod lines;
mod list;
mod memory;
mod names;
mod read;

mod change;
mod delete;
mod edit;
mod range_edit;
mod write;

pub use change::Change;
pub use delete::Removed;
pub use download::{Archive, Download};
pub(crate) use find::restore;
pub(crate) use lines::LineIndexes;
pub use list::Listing;
pub(crate) use memory::TextMemory;
pub use names::Names;
pub(crate) use names::NamesMemory;
pub use open::Tree;
pub use path::{AgentPath, Section};
pub(crate) use path::{SKILL_FILE, is_reserved};
pub use read::{Lines, Text};
pub use refusal::{Refusal, RefusalKind};
pub use write::StagedFile;
pub(crate) use write::{ARRIVING, ensure_directory};
