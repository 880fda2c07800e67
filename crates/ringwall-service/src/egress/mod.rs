//! The network of an exec: allowed hosts, questions about others, and the record of its
//! connections.
//!
//! The executor's proxy carries the bytes and asks here. An unlisted host is refused, or a person
//! is asked while the connection waits. Hosts allowed for good apply to boxes of that user where
//! the policy asks.

mod ask;
mod gate;
mod late;
mod proxy_socket;
mod rule;
mod session;
mod view;

pub use view::{ConnectionView, NetworkView};

pub(crate) use ask::{Asking, Questions};
pub(crate) use gate::ExecGate;
pub(crate) use late::{Late, LateNetwork, RecordLate};
pub(crate) use proxy_socket::Egress;
pub(crate) use rule::NetRule;
pub(crate) use session::{OnDuty, SessionWay};
