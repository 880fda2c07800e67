//! The boxes that are kept: single-use ones that were made ahead, and those that are bound to a session.
//!
//! `places` is the rule, pure: who has which place, who waits, what has to be made and what has to end. `demand` says how
//! many spares are wanted. `keeper` holds the boxes themselves, gives them to tasks and does what the rule says. A box
//! that was bound to a session never serves another one; a spare serves once.

mod bounds;
mod boxes;
mod demand;
mod figures;
mod keeper;
mod lease;
mod places;
mod settle;

pub use bounds::Bounds;
pub use boxes::Maker;
pub use figures::Figures;
pub use keeper::{Pool, Refused};
pub use lease::{Hold, Lease, SpareLease};
pub use places::OnBusy;
