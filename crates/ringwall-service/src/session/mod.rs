//! Sessions: conversations whose execs share files. A session lasts from its first use until it is
//! deleted or retention removes it.
//!
//! The files of a session are in `ringwall-workspace`. Its rules, where they differ from the settings,
//! are in the record. `manage` creates, lists, changes and deletes sessions, `rules` holds their
//! rules, and `files` reads and writes session files from outside of the boxes.

pub(crate) mod boxes;
pub(crate) mod code;
pub(crate) mod context;
mod exclusive;
mod files;
mod manage;
mod rules;

pub use manage::{SessionFilter, SessionList, SessionView};
pub use rules::SessionChange;
