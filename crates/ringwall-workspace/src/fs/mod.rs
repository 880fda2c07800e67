//! File operations beneath a directory handle: open, read, walk, measure, sync and delete.

pub(crate) mod beneath;
pub(crate) mod durable;
pub(crate) mod erase;
pub(crate) mod listing;
pub(crate) mod meter;
pub(crate) mod read;
