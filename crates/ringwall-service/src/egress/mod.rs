//! The network of an exec: allowed hosts, questions about others, and the record of its
//! connections.
//!
//! The executor's proxy forwards the bytes and asks here before it connects. An unlisted host is
//! refused, or a person is asked while the connection waits, depending on `net.unknown`. Remembered
//! hosts (`approvals/hosts`) apply to boxes of that user where `net.unknown` is `ask`.

mod gate;
mod rule;
mod session;

pub use gate::{ConnectionView, NetworkView};

pub(crate) use gate::{Egress, ExecGate};
pub(crate) use rule::{NetRule, Questions, Requester};
pub(crate) use session::{BoxGate, Late, LateNetwork, RecordLate, SessionProxy};
