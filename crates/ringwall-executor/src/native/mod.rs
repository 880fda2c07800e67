//! HEAD MISSING: say what this folder does.

pub(crate) mod base_rootfs;
pub(crate) mod prepare;
pub(crate) mod program;
pub(crate) mod provide;
pub(crate) mod running;
pub(crate) mod sources;
pub(crate) mod spawner;
pub(crate) mod start;
pub mod warm;
