//! Warm boxes: boxes prepared before their command is known (decision 0010). The pool
//! (`crate::pool`) owns them.
//!
//! A warm box is an ordinary box without the files of a workspace and without a command. It serves
//! one exec. Its `shape` was fixed when it was made, and it serves only grants of that shape. With a
//! waiting Python interpreter (`interpreter`) a run costs a tenth of starting one. Warm boxes need
//! root: each has a host uid of its own (`crate::uids`), and id-mapped mounts show it the workspace's
//! files as its own (`Spawner::mapping`).

mod interpreter;
mod shape;
mod warm_box;

pub use crate::error::Unserved;
pub use ringwall_jail::plan::WarmKind;
pub use shape::Shape;
pub use warm_box::{WarmBox, WarmSpec};
