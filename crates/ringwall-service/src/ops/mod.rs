//! HEAD MISSING: say what this folder does.

pub(crate) mod audit;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod overview;
pub(crate) mod prune;
