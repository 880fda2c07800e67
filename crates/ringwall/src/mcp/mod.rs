//! The MCP server: turns tool calls of agents into calls of the service, which makes all decisions
//! about permissions.
//!
//! One handler serves both transports, standard streams (`ringwall mcp`) and HTTP (`/mcp`), and
//! both modes of the protocol: with a session that begins with `initialize`, and without one. The
//! principal is determined for each request.

mod arguments;
mod bridge;
mod browser;
mod call;
mod caller;
mod elicitation;
mod files;
mod follow;
mod handler;
mod local_socket;
mod resources;
mod results;
mod skills;
mod stdio;
mod tool_list;
mod tools;

pub(crate) use caller::Scope;
pub(crate) use handler::Mcp;
pub(crate) use local_socket::serve as serve_local_socket;
pub(crate) use stdio::{McpArguments, run};
