//! THE CELL: makes one box out of one plan.
//!
//! The jail is the ringwall binary started a second time: single-threaded, with an empty environment and one
//! socket. It knows no policy, no HTTP, no database, nothing of ours but this crate, and it decides nothing: the
//! plan is data, applied from top to bottom, and whatever cannot be done ends it before the command runs.
//!
//! Read in this order: `plan` (what comes in), `spawner` (started once, copied for each box), `warden` (the process
//! outside the box), `init` (PID 1 inside it), `command` (what it starts), `report` (what goes back).

pub mod plan;
pub mod report;
pub mod seccomp;
pub mod wire;

mod cgroups;
mod command;
mod handover;
mod identity;
mod init;
mod mounts;
mod place;
mod progress;
mod restrict;
mod root;
mod sources;
mod spawner;
mod sys;
mod warden;
mod watchdog;

pub use spawner::{Request, main};
pub use sys::landlock_version;
pub use warden::{Birth, Start};

/// The name under which the executor starts the jail.
pub const PROCESS_NAME: &str = "ringwall-jail";
