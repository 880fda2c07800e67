//! Session boxes: an exec with the backend `aio` runs in the box of its session and finds the files
//! and processes that earlier execs left there.
//!
//! `boxes` gets a session box from the pool; `start` starts an exec in it; `process` is for
//! processes that outlive their request and `terminal` for terminals; `turn` pauses and resumes
//! boxes; `room` enforces their disk quotas. Each of these execs is decided, recorded, limited,
//! listed and cancelled like any other.

mod boxes;
mod process;
mod room;
mod start;
mod terminal;
mod turn;

pub(crate) use boxes::home_grant;
pub use process::{AfterInput, ProcessOutput};
pub use terminal::{OpenedTerminal, Terminal, TerminalEnd, TerminalEvent};
