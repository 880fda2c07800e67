//! Which paths of the host a command names, and which of them are allowed. Linux and Windows
//! syntax.
//!
//! The rules compare text. A symlink on the host can give a forbidden path an allowed name, so the
//! code that opens the path must check where it leads. A path that these rules miss is not mounted
//! into the box.
//!
//! - `normalise`: text to [`HostPath`].
//! - `host_path`: when one path covers another. `sensitive`: warnings about paths such as `/etc`.
//! - `present`: the paths that every box has, and the check of the others against a list.
//! - `table`: which words of which command are paths. `options` applies it; `forms` handles
//!   commands with a syntax of their own. `usage`: whether the command runs, reads or writes the
//!   file.

mod forms;
mod host_path;
mod normalise;
mod options;
mod present;
mod sensitive;
mod table;
mod usage;

pub use host_path::{HostPath, PathStyle};
pub use normalise::{NewEntry, normalise, normalise_entry};
pub(crate) use options::{Operand, Sureness, looks_like_path, read_operands};
pub use present::{blocked, is_in_every_box};
pub use usage::FileUse;
