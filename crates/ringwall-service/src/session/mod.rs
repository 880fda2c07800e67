//! Sessions: conversations whose execs share files. A session lasts from its first use until it is
//! deleted or retention removes it.
//!
//! The files of a session are in `ringwall-workspace`. Its rules, where they differ from the
//! settings, are in the record. `manage` creates, lists, changes and deletes sessions, `rules`
//! holds their rules, and `files` reads and writes session files from outside of the boxes.
//!
//! Execs in a session: `code` assesses and runs code; `session_box` creates, pauses and ends
//! session boxes and starts execs in them; `context` runs cells in interpreters that stay;
//! `process` is for processes that outlive their request and `terminal` for terminals; `exclusive`
//! acquires the session for an exec. Each of these execs is decided, recorded, limited, listed and
//! cancelled like any other.

pub(crate) mod code;
mod context;
mod exclusive;
mod files;
mod manage;
mod process;
mod rules;
mod session_box;
mod terminal;

pub use context::{ContextAddress, ContextView};
pub use manage::{SessionFilter, SessionList, SessionView};
pub use process::{AfterInput, ProcessOutput};
pub use rules::SessionChange;
pub use terminal::{OpenedTerminal, Terminal, TerminalEnd, TerminalEvent};

pub(crate) use session_box::session_box_grant;
