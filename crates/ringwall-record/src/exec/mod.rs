//! HEAD MISSING: say what this folder does.

pub(crate) mod columns;
pub(crate) mod exec;
pub(crate) mod find;
pub(crate) mod finish;
pub(crate) mod intend;
pub(crate) mod policies;
pub(crate) mod status;
