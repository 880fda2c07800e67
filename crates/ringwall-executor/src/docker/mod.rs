//! Boxes that docker makes: a grant becomes the words of one `docker run`, and a container an outcome.
//!
//! Only the `docker` client is spoken to, so that what a machine's own docker can reach (a context, Desktop, another
//! runtime) works here too. Nothing is believed to answer: every call has a time limit, a pulse watches the daemon while
//! containers run, and a daemon that is missing, dead or hanging ends an exec with [`crate::Error::BackendUnavailable`].
//! No other backend ever stands in. What a container did is learnt from the daemon's events, because `--rm` leaves
//! nothing to inspect; what was left behind is removed as soon as the daemon can.

mod ahead;
mod argv;
mod build;
mod client;
mod container;
mod daemon;
mod doorway;
mod environment;
mod events;
mod images;
mod instance;
mod launch;
mod look;
mod mirror;
mod name;
pub mod paths;
mod proof;
mod protection;
mod pulse;
mod sweep;
mod usage;
mod watcher;
mod words;

pub use ahead::{ContainerShape, ContainerSpare};
pub use build::{BuildStep, DEFAULT_IMAGE};
pub use daemon::{Daemon, DockerState, Runtime};
pub use launch::{Docker, DockerSettings};
pub use ringwall_jail::agent::AGENT;
pub use ringwall_jail::shim::PROXY_SOCKET_PATH;

#[cfg(test)]
pub(crate) use argv::tests;
