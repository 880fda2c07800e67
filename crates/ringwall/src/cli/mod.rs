//! The subcommands. Most of them are clients of a server's HTTP API.

pub(crate) mod agent;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod gc;
pub(crate) mod image;
mod json_text;
pub(crate) mod run;
pub(crate) mod skills;
pub(crate) mod streams;
pub(crate) mod token;
pub(crate) mod transfer;
