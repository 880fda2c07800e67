//! HEAD MISSING: say what this folder does.

pub(crate) mod ledger;
pub(crate) mod writer;
