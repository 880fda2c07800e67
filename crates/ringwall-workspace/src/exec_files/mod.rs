//! Files of one exec: inputs, output, artifacts and manifest, and their removal.

pub(crate) mod artifacts;
pub(crate) mod begin;
pub(crate) mod collect;
pub(crate) mod finish;
pub(crate) mod inputs;
pub(crate) mod output;
pub(crate) mod recycle;
