//! The MCP door: an agent's tools, turned into calls of the service. It has no power of its own.
//!
//! One handler serves both transports, standard streams (`ringwall mcp`) and HTTP (`/mcp`), and both ways of the protocol:
//! with a session that begins by `initialize`, and without one, each request for itself. Who asks is known for each request
//! anew, and every right is the service's to give.
//!
//! Reading order: who asks and about what (`who`), what is offered (`arguments`, `answers`, `tools`, `browser_tools`, `skills`),
//! what a call does (`handler`, `call`, `run`, `code`, `browser`, `approval`, `files`, `resources`), what changes (`changes`), and the verb (`verb`, `windows`, `bridge`, `server`).

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
