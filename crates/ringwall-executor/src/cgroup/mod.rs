//! HEAD MISSING: say what this folder does.

pub(crate) mod cache;
pub(crate) mod freezer;
pub(crate) mod groups;
pub(crate) mod layout;
