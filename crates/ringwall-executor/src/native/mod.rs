//! Boxes made by this program's own jail: spawner, preparation, start, and boxes made ahead.

pub(crate) mod base_rootfs;
pub(crate) mod prepare;
pub(crate) mod program;
pub(crate) mod provide;
pub(crate) mod running;
pub(crate) mod sources;
pub(crate) mod spawner;
pub(crate) mod start;
pub mod warm;
