//! Boxes made ahead, for commands that are not known yet: *spares*. The pool (`crate::pool`) keeps them.
//!
//! A spare is an ordinary box that lacks the files of a workspace and a command. It is used once: whoever gets it is the
//! first and the last tenant in it. Its `shape` is what was settled when it was made; it serves a grant of that shape and
//! no other. With a Python interpreter in it that waits for code (`interpreter`), a run costs a tenth of a started one.
//! Only as root: whoever's files it will show, a spare is a user of its own on the host (`leases`), and the files are
//! shown to that user as its own (`mappings`).

mod interpreter;
mod serve;
mod shape;
mod sort;
mod spare;

pub use crate::error::Unserved;
pub use shape::Shape;
pub use sort::SpareSort;
pub use spare::{Spare, SpareKind};
