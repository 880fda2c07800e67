//! Boxes that outlive an exec: session boxes with their contexts and terminals, and the pool that
//! keeps them and the warm boxes.

mod answer;
pub(crate) mod browser;
mod exclusive;
mod interpreter;
mod language;
mod pool;
mod pooled_box;
mod terminal;

pub use answer::Bundle;
pub use language::Language;

pub(crate) use answer::CellAnswer;
pub(crate) use exclusive::{Hold, SessionGates, Shared};
pub(crate) use interpreter::{Conversed, Interpreter, words};
pub(crate) use pool::{BoxBackends, BoxPool, Boxes};
pub(crate) use pooled_box::{BoxKey, Context, Doing, Entered, MAX_CONTEXTS, PooledBox};
pub(crate) use terminal::{Keyboard, Pressed, ProcessHandle, TerminalHandle};

/// Mount point of the session's or agent's files in a box.
pub(crate) const WORKSPACE: &str = "/workspace";
/// The home directory in every box.
pub(crate) const HOME: &str = "/home/sandbox";
