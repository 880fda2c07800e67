//! HEAD MISSING: say what this folder does.

pub(crate) mod arguments;
pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod logging;
pub(crate) mod serve;
pub(crate) mod webhook;
