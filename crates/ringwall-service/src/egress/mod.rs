//! The network of an exec: which hosts its box may reach, who is asked about others, and what became of each connection.
//!
//! The executor carries the bytes; here is who says yes. A host that is not in the list is refused, or put before a person
//! while the connection waits. What a person allows for good counts for boxes of that user, where the policy asks at all.

mod ask;
mod gate;
mod hosts;
mod late;
mod open;
mod rule;
mod session;
mod view;

pub use hosts::AllowedHost;
pub use view::{ConnectionView, NetworkView};

pub(crate) use ask::{Asking, Questions};
pub(crate) use gate::ExecGate;
pub(crate) use rule::NetRule;
pub(crate) use session::{OnDuty, SessionWay};
