//! `ringwall serve`: start-up configuration, start and stop of the server, and the webhook.

pub(crate) mod arguments;
pub(crate) mod config;
pub(crate) mod environment;
pub(crate) mod serve;
pub(crate) mod webhook;
