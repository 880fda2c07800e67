//! Disk quotas: the usage of each workspace and session, and reservations for data being written.

mod quota;
mod watch;

pub(crate) use quota::{Disk, DiskReservation, MIB, Quotas};
pub(crate) use watch::watch_all;
