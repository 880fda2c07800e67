//! WebSocket routes: approvals and terminals.

pub(crate) mod socket_line;
pub(crate) mod socket_words;
pub(crate) mod sockets;
pub(crate) mod terminals;
