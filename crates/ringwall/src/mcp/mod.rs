//! The MCP server: turns tool calls of agents into calls of the service, which makes all decisions
//! about permissions.
//!
//! One handler serves both transports, standard streams (`ringwall mcp`) and HTTP (`/mcp`), and
//! both modes of the protocol: with a session that begins with `initialize`, and without one. The
//! principal is determined for each request.

mod answers;
mod approval;
mod arguments;
mod bridge;
mod browser;
mod browser_tools;
mod call;
mod changes;
mod code;
mod files;
mod handler;
mod resources;
mod run;
mod server;
mod skills;
mod tools;
mod verb;
mod who;
mod windows;

pub(crate) use handler::Mcp;
pub(crate) use verb::{McpArguments, run};
pub(crate) use who::Scope;
pub(crate) use windows::serve as serve_windows;
