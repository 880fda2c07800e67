//! The paths of the host that agents may reach, and the commands that use them.
//!
//! `list` reads the entries and `change` edits them. `state` describes the switch. `reach` resolves
//! names on the host for the policy. `execute` runs a session's command, `question` asks about
//! paths that are not allowed, and `preview` shows the effect of a remembered answer.

mod change;
mod execute;
mod list;
mod preview;
mod question;
mod reach;
mod state;

pub use change::{NewSandboxPath, SwitchedPaths, WantedPath};
pub use execute::{SessionCommand, SessionExecuted};
pub use list::{AllowedPaths, SandboxPath};
pub use preview::{Considered, Preview, PreviewedPath};
pub use ringwall_record::PathChange;
pub use state::PathControl;

pub(crate) use change::log_path_control;
