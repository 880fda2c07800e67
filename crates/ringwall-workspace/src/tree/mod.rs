//! The files API: reads and changes an agent's `files/` and `skills/`, or a session's files, while
//! boxes use them.
//!
//! A box may change these directories at any moment, and the server's locks do not stop it. So
//! every path is looked up anew beneath the handle of its section; reads follow only symlinks that
//! stay within the tree, and changes follow none. A file is written to `.staging` and renamed when
//! it is complete.
//!
//! Reading order: `path`, `open`, `find`, `list`, `read`, `write`, `edit`.

mod download;
mod edit;
mod error;
mod find;
mod lines;
mod list;
mod names;
mod open;
mod path;
mod read;
mod write;

pub use download::{Archive, Download};
pub use edit::Change;
pub use error::{FilesError, FilesErrorKind};
pub(crate) use lines::LineIndexCache;
pub use list::Listing;
pub use names::Names;
pub(crate) use names::NamesCache;
pub use open::Tree;
pub use path::{AgentPath, Section};
pub(crate) use path::{SKILL_FILE, is_reserved};
pub(crate) use read::TextMemory;
pub use read::{Lines, Text};
pub(crate) use write::WRITE_PREFIX;
pub use write::{Removed, StagedFile};
