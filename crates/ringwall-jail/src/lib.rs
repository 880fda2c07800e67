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

mod processor;
mod progress;
mod protocol;
mod roles;
mod setup;
mod sys;

pub use setup::seccomp;

pub use setup::late_mounts;

pub use setup::sources;

pub use setup::cgroups;

pub use setup::restrict;

pub use roles::agent;

pub use roles::shim;

pub use protocol::wire;

pub use protocol::report;

pub use protocol::plan;

pub use roles::birth::{bear_alone, raise_open_files};
pub use roles::gvisor_init::{Entrance, WardenOrder, WardenReport};
pub use roles::reaper::{Undertaker, keep_watch};
pub use roles::spawner::{Answer, NetworkSource, Removal, Request, main};
pub use roles::start::{send_completion, send_limits, send_plan};
pub use sys::landlock_version;

/// The name under which the executor starts the jail.
pub const PROCESS_NAME: &str = "ringwall-jail";
