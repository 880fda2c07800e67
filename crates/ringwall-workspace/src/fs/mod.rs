//! HEAD MISSING: say what this folder does.

pub(crate) mod beneath;
pub(crate) mod copy;
pub(crate) mod durable;
pub(crate) mod erase;
pub(crate) mod listing;
pub(crate) mod meter;
