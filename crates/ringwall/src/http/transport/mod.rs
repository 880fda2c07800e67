//! Connections, limits, authentication and bodies: everything that handlers share.

pub(crate) mod access;
pub(crate) mod body;
pub(crate) mod caller_limits;
pub(crate) mod connection_limit;
pub(crate) mod connections;
pub(crate) mod cookie;
pub(crate) mod file_response;
pub(crate) mod gate;
pub(crate) mod guarded_body;
pub(crate) mod host_check;
pub(crate) mod json;
pub(crate) mod problem;
pub(crate) mod range;
pub(crate) mod stalls;
pub(crate) mod streamed_response;
pub(crate) mod unread_body;
