//! HEAD MISSING: say what this folder does.

pub(crate) mod entries;
pub(crate) mod entry;
pub(crate) mod finding;
pub(crate) mod head;
pub(crate) mod rows;
pub(crate) mod verify;
pub(crate) mod verify_rows;
