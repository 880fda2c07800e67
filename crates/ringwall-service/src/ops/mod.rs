//! Operations of the server itself: health, metrics, overview, audit and retention.

pub(crate) mod audit;
mod change_settings;
pub(crate) mod health;
pub(crate) mod overview;
pub(crate) mod prune;
