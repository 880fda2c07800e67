//! The agent of a session box: starts the session's processes, one after another or concurrently.
//!
//! It is the command of an ordinary box: all protections are in force before its first instruction,
//! and it has no privilege that its processes lack. It exchanges frames ([`frame`]) with the server
//! over its standard input and output. The server does not trust it, because code in the box can
//! kill it and take its place. It has no power over the box that this code lacks.

mod event_loop;
pub mod frame;
mod isolation;
mod process;
mod signal_session;
mod streams;

pub use event_loop::main as agent_main;

/// Path of the agent in a session box, and the `argv[0]` with which it is started.
pub const AGENT: &str = "/run/ringwall/agent";
