//! Files and list of sessions.

pub(crate) mod files;
pub(crate) mod list;
