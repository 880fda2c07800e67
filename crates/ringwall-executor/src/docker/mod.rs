//! The docker backend: turns a grant into one `docker run` command line, and the end of the
//! container into an outcome.
//!
//! It uses the `docker` client instead of the daemon's API, so every set-up that the client
//! supports (a context, Desktop, another runtime) works. Every call has a time limit, and `pulse`
//! checks the daemon while containers run. A missing, dead or hanging daemon ends an exec with
//! [`crate::Error::BackendUnavailable`]; no other backend replaces it. Containers run with `--rm`
//! and cannot be inspected afterwards, so their state comes from the daemon's events. Containers
//! left behind are removed as soon as the daemon answers.

mod argv;
mod build;
mod client;
mod container;
mod daemon;
mod doorway;
mod environment;
mod events;
mod instance;
mod launch;
mod look;
mod mirror;
mod name;
pub mod paths;
mod protection;
mod pulse;
mod sweep;
mod usage;
mod watcher;
mod words;

pub use build::{BuildStep, DEFAULT_IMAGE};
pub use daemon::{Daemon, DockerState, Runtime};
pub use launch::{Docker, DockerSettings};
pub use ringwall_jail::agent::AGENT;
pub use ringwall_jail::shim::PROXY_SOCKET_PATH;

#[cfg(test)]
pub(crate) use argv::tests;
