//! The pool: warm boxes, which are single-use, and session boxes.
//!
//! `slots` holds the pure rules: which waiter gets which box, what to start and what to end.
//! `warm_boxes` is its part about warm boxes, `demand` says how many of them are wanted. `keeper` owns
//! the boxes and carries the rules out. A session box never serves another session. A warm box
//! serves one exec and leaves the pool when it is taken.

mod bounds;
mod boxes;
mod demand;
mod figures;
mod keeper;
mod lease;
mod settle;
mod slots;
mod warm_boxes;

pub use bounds::Bounds;
pub use boxes::{PoolBoxes, Sort};
pub use figures::{Figures, WarmFigures};
pub use keeper::{Pool, Present, Refused};
pub use lease::{Hold, Lease};
pub use slots::OnBusy;
