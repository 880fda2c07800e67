//! HEAD MISSING: say what this folder does.

pub(crate) mod socket_line;
pub(crate) mod socket_words;
pub(crate) mod sockets;
pub(crate) mod terminals;
