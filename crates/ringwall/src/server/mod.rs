//! `ringwall serve`: start-up configuration, logging, the server's life cycle, and webhooks.

pub(crate) mod arguments;
pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod logging;
pub(crate) mod serve;
pub(crate) mod webhook;
