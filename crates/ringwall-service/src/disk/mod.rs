//! How much of the disk each workspace and session takes, and room that is reserved for what is being written.

mod quota;
mod room;
mod watch;

pub(crate) use quota::{Disk, MIB, Quotas};
pub(crate) use room::Room;
pub(crate) use watch::watch_all;
