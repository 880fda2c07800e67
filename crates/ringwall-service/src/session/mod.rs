//! Sessions: conversations whose execs share files. A session lasts from its first use until it is
//! deleted or retention removes it.
//!
//! The files of a session are in `ringwall-workspace`. Its rules, as far as they differ from the
//! settings, are in the record. `place` finds a session, `rules` holds its rules, `keep` creates,
//! lists, changes and deletes sessions, and `files` reads and writes session files from outside of
//! its boxes.

pub(crate) mod boxes;
pub(crate) mod code;
pub(crate) mod context;
mod exclusive;
mod files;
mod keep;
mod paths;
mod rules;

pub use keep::{SessionFilter, SessionList, SessionView};
pub use rules::SessionChange;
