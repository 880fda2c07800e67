//! What people are asked, and their answers, through the real binary: over HTTP, over WebSockets, from the command line, by MCP
//! and to a webhook. Every trial has a server of its own, and a directory of the host that nobody has allowed yet.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

use tests::support::server;

mod alone;
mod answers;
mod bridge;
mod conformance;
mod crowds;
mod files;
mod hostile;
mod lives;
mod mcp;
mod mcp_tools;
mod preview;
mod site;
mod socket;
mod sockets;
mod stages;
mod tenants;
mod verbs;
mod webhook;
