//! The files of sessions, and the list of sessions.

pub(crate) mod files;
pub(crate) mod list;
