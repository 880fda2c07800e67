//! The docker backend: turns a grant into one `docker run` command line, and the end of the
//! container into an outcome.
//!
//! It uses the `docker` client instead of the daemon's API, so every set-up that the client
//! supports (a context, Desktop, another runtime) works. Every call has a time limit, and a periodic
//! check asks the daemon while containers run. A missing, dead or hanging daemon ends an exec with
//! [`crate::Error::BackendUnavailable`]; no other backend replaces it. Containers run with `--rm`
//! and cannot be inspected afterwards, so their state comes from the daemon's events. Containers
//! left behind are removed as soon as the daemon answers.

mod argv;
mod build;
mod cleanup;
mod client;
mod container;
mod daemon;
mod environment;
mod events;
mod find_python;
mod instance;
mod launch;
pub mod paths;
mod protection;
mod proxy_socket;
mod stderr;
mod usage;

pub use build::{BuildStep, DEFAULT_IMAGE};
pub use daemon::{Daemon, DockerState, Runtime};
pub use launch::{Docker, DockerSettings};
pub use ringwall_jail::agent::AGENT;
pub use ringwall_jail::shim::PROXY_SOCKET_PATH;

#[cfg(test)]
pub(crate) use argv::tests;
