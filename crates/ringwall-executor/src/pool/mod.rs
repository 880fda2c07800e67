//! The boxes that are kept: single-use ones that were made ahead, and those that are bound to a session.
//!
//! `places` is the rule, pure: who has which place, who waits, what has to be made and what has to end; `spares` is the
//! part of it about those, and `demand` says how many of them are wanted. `keeper` holds the boxes themselves, gives them to tasks and does what the rule says. A box
//! that was bound to a session never serves another one; a spare serves once, and is not the pool's from the moment in
//! which somebody takes it.

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
