//! Boxes made by this program's own jail: spawner, preparation, start, and boxes made ahead.

pub(crate) mod prepare;
pub(crate) mod provide;
pub(crate) mod running;
pub(crate) mod start;
pub mod warm;
