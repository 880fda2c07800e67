//! The paths of the host that agents may reach, and the commands that use them.
//!
//! `list` reads the entries, `change` edits them, and `remember` adds those that a person allowed
//! for good. `reach` resolves names on the host for the policy. `execute` runs a session's command,
//! `ask` waits for approval of paths that are not allowed, and `cover` digests the files that such
//! a command runs and reads.

mod change;
mod list;
mod preview;
mod reach;
mod remember;
mod state;

mod execute;
mod question;

pub use change::{NewSandboxPath, SwitchedPaths, WantedPath};
pub use execute::{SessionCommand, SessionExecuted};
pub use list::{AllowedPaths, SandboxPath};
pub use preview::{Considered, Preview, PreviewedPath};
pub use ringwall_record::PathChange;
pub use state::PathControl;

pub(crate) use change::log_path_control;
