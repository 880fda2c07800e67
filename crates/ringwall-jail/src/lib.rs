//! THE CELL: makes one box out of one plan.
//!
//! The jail is a process of its own: single-threaded, with an empty environment and one socket. It knows no
//! policy, no HTTP, no database, nothing of ours but this crate, and it decides nothing: the plan is data, applied
//! from top to bottom, and whatever cannot be done ends it before the command runs.
//!
//! Read in this order: `plan` (what comes in), `spawner` (the parent of every box), `birth`, `init` (PID 1), `command`
//! (what it starts), `report` (what goes back); `spare` is for boxes that are made ahead, `warden` for boxes that another
//! program makes, `resident` for what runs in those that stay, `porter` for containers with a way out. The executor borrows
//! `sources`, `later`, `cgroups` and `wire`.

pub mod cgroups;
pub mod later;
pub mod plan;
pub mod porter;
pub mod report;
pub mod resident;
pub mod restrict;
pub mod seccomp;
pub mod sources;
pub mod wire;

mod birth;
mod command;
mod identity;
mod init;
mod interpreter;
mod mounts;
mod network;
mod networks;
mod place;
mod processor;
mod progress;
mod root;
mod socket_memory;
mod spare;
mod spawner;
mod start;
mod sys;
mod terminal;
mod undertaker;
mod warden;
mod watchdog;

pub use birth::{bear_alone, raise_open_files};
pub use spawner::{Answer, NetworkSource, Removal, Request, main};
pub use start::{send_completion, send_limits, send_plan};
pub use sys::landlock_version;
pub use undertaker::{Undertaker, keep_watch};
pub use warden::{Entrance, WardenOrder, WardenReport};

/// The name under which the executor starts the jail.
pub const PROCESS_NAME: &str = "ringwall-jail";
