//! One file per group of routes: reads the request, calls one method of the service, writes the
//! response.

pub(crate) mod approvals;
pub(crate) mod artifacts;
pub(crate) mod audit;
pub(crate) mod browser;
pub(crate) mod console;
pub(crate) mod contexts;
pub(crate) mod events;
pub(crate) mod execs;
pub(crate) mod login;
pub(crate) mod mcp;
pub(crate) mod risk;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod server;
pub(crate) mod session_box;
pub(crate) mod session_files;
pub(crate) mod sessions;
pub(crate) mod skills;
pub(crate) mod tickets;
pub(crate) mod tokens;
