//! Which paths of the host are meant, and which of them are allowed: rules on spelling, for Linux and for Windows.
//!
//! Nothing is looked up here: a link on the host can make an innocent name mean another place, and whoever opens the path
//! has to see to that. What is missed here is not in the box either.
//!
//! Reading order: text becomes a `HostPath` (`normalise`), which covers others (`host_path`) and may deserve a warning
//! (`sensitive`); some are in every box anyway, the rest is held against a list (`present`). Which words of a command are
//! paths says a table (`table`), read by `options`, with a room for those that have a syntax of their own (`forms`).

mod forms;
mod host_path;
mod normalise;
mod options;
mod present;
mod sensitive;
mod table;
mod usage;

pub(crate) use forms::{asks_about_file, compares_files};
pub use host_path::{HostPath, PathStyle};
pub(crate) use normalise::is_windows;
pub use normalise::{NewEntry, normalise, normalise_entry};
pub(crate) use options::{Operand, Sureness, looks_like_path, read_operands};
pub use present::{blocked, is_always_there};
pub use usage::FileUse;
