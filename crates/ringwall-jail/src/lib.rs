//! Makes one box from one plan.
//!
//! The jail runs as a process of its own: single-threaded, with an empty environment and one socket
//! to the executor. It decides nothing. The plan is data and is applied from top to bottom; a step
//! that fails ends the box before its command runs. The crate knows no policy, HTTP or database and
//! depends on no other crate of ours.
//!
//! Start reading at [`plan`] (input), `roles/spawner` (parent of every box's PID 1),
//! `roles/spawn_init`, `roles/init` (PID 1), `roles/command` and [`report`] (output). `roles/warm`
//! serves boxes made before their command is known, `roles/gvisor_init` the processes of gVisor,
//! [`agent`] session boxes and [`shim`] containers with network access. The executor itself calls
//! [`sources`], [`cgroups`] and [`wire`].

mod processor;
mod progress;
mod protocol;
mod roles;
mod setup;
mod sys;

pub use setup::seccomp;

pub use setup::sources;

pub use setup::cgroups;

pub use setup::restrict;

pub use roles::agent;

pub use roles::shim;

pub use protocol::wire;

pub use protocol::report;

pub use protocol::plan;

pub use roles::gvisor_init::{CgroupEntry, GvisorReport, GvisorRequest};
pub use roles::reaper::CgroupReaper;
pub use roles::spawn_init::{raise_open_files, spawn_init};
pub use roles::spawner::{NetworkSource, Removal, Reply, Request, main};
pub use roles::start::{send_completion, send_limits, send_plan};
pub use sys::landlock_version;

/// `argv[0]` of the jail processes that the executor starts.
pub const PROCESS_NAME: &str = "ringwall-jail";
