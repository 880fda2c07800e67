//! Session boxes: an exec with the backend `aio` runs in the box of its session and finds the files
//! and processes that earlier execs left there.
//!
//! `session_box` creates, pauses and ends session boxes; `start` starts an exec in one; `process` is
//! for processes that outlive their request and `terminal` for terminals. Each of these execs is
//! decided, recorded, limited, listed and cancelled like any other.

mod process;
mod session_box;
mod start;
mod terminal;

pub use process::{AfterInput, ProcessOutput};
pub(crate) use session_box::home_grant;
pub use terminal::{OpenedTerminal, Terminal, TerminalEnd, TerminalEvent};
