//! The agent of a box that stays: it starts what its session wants, one visit after another or beside each other.
//!
//! It is this program in another role, and the command of an ordinary box: every protection of the box is in force before
//! its first instruction, and it has no right that the visits do not have. It speaks frames (`frame`) over its standard
//! input and output. The other side believes nothing that it says, because code in the box can end it and take its place;
//! what it can do to a visit of the same box, that code could do itself.

mod agent;
mod apart;
pub mod frame;
mod outlet;
mod processes;
mod visit;

pub use agent::main as agent_main;

/// Where the agent is in every box, and under which name it is started.
pub const AGENT: &str = "/run/ringwall/agent";
