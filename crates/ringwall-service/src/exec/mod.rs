//! The life cycle of an exec, from the request to the recorded outcome, and the queries about it.

pub(crate) mod artifacts;
pub(crate) mod assess;
pub(crate) mod authorize;
pub(crate) mod code;
pub(crate) mod collect;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod excerpt;
pub(crate) mod files;
pub(crate) mod host_paths;
pub(crate) mod invoke;
pub(crate) mod lifecycle;
pub(crate) mod line;
pub(crate) mod network;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod query;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod run;
pub(crate) mod spec;
pub(crate) mod submit;
pub(crate) mod view;
