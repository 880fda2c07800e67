//! How much of the disk each workspace and session takes, and room that is reserved for what is being written.

mod quota;
mod reservation;
mod watch;

pub(crate) use quota::{Disk, MIB, Quotas};
pub(crate) use reservation::DiskReservation;
pub(crate) use watch::watch_all;
