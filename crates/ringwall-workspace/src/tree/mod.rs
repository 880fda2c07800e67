//! The files API: reads and changes an agent's `files/` and `skills/`, or a session's files, while
//! boxes use them.
//!
//! A box may change these directories at any moment, and the server's locks do not stop it. So
//! every path is looked up anew beneath the handle of its section; reads follow only symlinks that
//! stay within the tree, and changes follow none. A file is written to `.staging` and renamed when
//! it is complete.
//!
//! Reading order: `path`, `open`, `find`, `walk`; then reads (`list`, `read`, `download`) and
//! changes (`change`, `write`, `edit`, `range_edit`, `delete`).

mod error;
mod path;

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
pub use error::{FilesError, FilesErrorKind};
pub(crate) use find::restore_owner_access;
pub(crate) use lines::LineIndexCache;
pub use list::Listing;
pub(crate) use memory::TextMemory;
pub use names::Names;
pub(crate) use names::NamesCache;
pub use open::Tree;
pub use path::{AgentPath, Section};
pub(crate) use path::{SKILL_FILE, is_reserved};
pub use read::{Lines, Text};
pub use write::StagedFile;
pub(crate) use write::{WRITE_PREFIX, ensure_directory};
