//! Which paths of the host agents may reach, and what is run on them.
//!
//! `list` is what is allowed and `change` who changes it; `remember` adds what a person allowed for good. `reach` finds out
//! where names really lead and hands that to the policy. `execute` runs a session's command, `ask` is the wait of one
//! that names a path which nobody has allowed, and `cover` digests the files that such a command runs and reads.

mod change;
mod cover;
mod list;
mod reach;
mod remember;
mod state;

mod ask;
mod execute;

pub use change::{NewSandboxPath, SwitchedPaths, WantedPath};
pub use execute::{SessionCommand, SessionExecuted};
pub use list::{AllowedPaths, SandboxPath};
pub use ringwall_record::PathChange;
pub use state::PathControl;

pub(crate) use ask::{APPROVAL_EXPIRED, DENIED_BY_PERSON};
pub(crate) use change::log_path_control;
pub(crate) use cover::{Coverage, Covering};
pub(crate) use execute::HOME;
pub(crate) use list::{Listed, read_path};
pub(crate) use reach::{Approved, host_mounts, note, unseen};
