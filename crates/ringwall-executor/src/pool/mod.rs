//! The pool: warm boxes, which are single-use, and session boxes.
//!
//! `places` holds the pure rules: which waiter gets which box, what to start and what to end.
//! `spares` is its part about warm boxes, `demand` says how many of them are wanted. `keeper` owns
//! the boxes and carries the rules out. A session box never serves another session. A warm box
//! serves one exec and leaves the pool when it is taken.

mod bounds;
mod boxes;
mod demand;
mod figures;
mod keeper;
mod lease;
mod places;
mod settle;
mod sort;
mod spares;

pub use bounds::Bounds;
pub use boxes::Maker;
pub use figures::{Figures, SpareFigures};
pub use keeper::{Pool, Present, Refused};
pub use lease::{Hold, Lease};
pub use places::OnBusy;
pub use sort::{Pace, Sort};
