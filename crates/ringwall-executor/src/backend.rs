//! The names of the backends in requests, records and messages.

pub const NATIVE: &str = "native";
pub const DOCKER: &str = "docker";
pub const GVISOR: &str = "gvisor";
pub const AIO: &str = "aio";
