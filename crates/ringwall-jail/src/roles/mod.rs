//! The programs that this crate becomes when the binary is started again: spawner, init, session agent and helpers.

pub mod agent;
pub(crate) mod birth;
pub(crate) mod command;
pub(crate) mod gvisor_init;
pub(crate) mod init;
pub(crate) mod interpreter;
pub(crate) mod reaper;
pub mod shim;
pub(crate) mod spawner;
pub(crate) mod start;
pub(crate) mod warm;
pub(crate) mod watchdog;
