//! The aio backend: an external AIO Sandbox service, a container run by others, that executes
//! commands and stores files over HTTP.
//!
//! `address` checks the URL, `connection` sends one request and bounds its answer, `client` has one
//! method per request. `start` hands over a granted command, `follow` fetches its output, `running`
//! waits for its end. `directory` is the path of a session's files on the service, `line` builds
//! shell lines.
//!
//! Nothing here isolates anything: the service does, and each outcome says so. A service is one
//! container, so it must be used for one workspace only. No other backend replaces this one.

mod address;
mod client;
mod connection;
mod directory;
mod follow;
mod line;
mod running;
mod start;
#[cfg(test)]
mod tests;

pub use crate::aio_error::AioError;
pub use address::ServiceUrl;
pub use client::{AioService, ServiceInfo};
pub use directory::ServiceDirectory;
pub use start::{OnCreated, ServiceFile, ServiceWork};
