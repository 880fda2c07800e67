//! The subcommands. Most of them are clients of a server's HTTP API.

pub(crate) mod agent;
pub(crate) mod approvals;
pub(crate) mod approvals_watch;
pub(crate) mod audit;
pub(crate) mod client;
pub(crate) mod code;
pub(crate) mod event_stream;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod gc;
pub(crate) mod image;
pub(crate) mod image_docker;
pub(crate) mod json_text;
pub(crate) mod message;
pub(crate) mod run;
pub(crate) mod run_report;
pub(crate) mod skills;
pub(crate) mod streams;
pub(crate) mod token;
pub(crate) mod transfer;
