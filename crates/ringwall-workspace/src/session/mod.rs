//! HEAD MISSING: say what this folder does.

pub(crate) mod files;
pub(crate) mod list;
