//! Approvals through the real binary: over HTTP, over WebSockets, from the command line, by MCP and
//! to a webhook. Each test has its own server and its own host directories that are not allowed
//! yet.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

use tests::support::server;

mod answers;
mod bridge;
mod cli;
mod conformance;
mod exclusive;
mod files;
mod fixture;
mod limits;
mod load;
mod mcp;
mod mcp_tools;
mod permissions;
mod preview;
mod restart;
mod second_answer;
mod socket;
mod sockets;
mod webhook;
