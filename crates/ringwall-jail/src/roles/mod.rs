//! The roles in which this binary is started: spawner, PID 1, session agent and their helpers.

pub mod agent;
pub(crate) mod command;
pub(crate) mod gvisor_init;
pub(crate) mod init;
pub(crate) mod interpreter;
pub(crate) mod reaper;
pub mod shim;
pub(crate) mod spawn_init;
pub(crate) mod spawner;
pub(crate) mod start;
pub(crate) mod warm;
pub(crate) mod watchdog;
