//! WebSocket routes: approvals and terminals.

pub(crate) mod approvals;
pub(crate) mod connection;
pub(crate) mod messages;
pub(crate) mod terminals;
