//! The boxes of sessions: code with the backend `aio` runs in the one box of its session, and finds there what was left.
//!
//! `boxes` is the way into one, through the pool; `start` brings an exec into its own; `process` is for those that nobody
//! waits for; `terminal` and `keyboard` for those at which somebody sits; `turn` pauses and resumes; `room`
//! looks after what they write. An exec in such a box is an exec like any other: decided, recorded, limited, listed, cancelled.

mod boxes;
mod process;
mod room;
mod start;
mod terminal;
mod turn;

pub(crate) use boxes::home_grant;
pub use process::{AfterInput, ProcessOutput};
pub use terminal::{OpenedTerminal, Terminal, TerminalEnd, TerminalEvent};
