//! The audit chain: entries, the signed head, and verification.

pub(crate) mod entries;
pub(crate) mod entry;
pub(crate) mod finding;
pub(crate) mod head;
pub(crate) mod rows;
pub(crate) mod verify;
pub(crate) mod verify_rows;
