//! Turns a grant and facts about the host into a plan for the jail. Pure.

pub(crate) mod base_rootfs;
pub(crate) mod limits;
pub(crate) mod lower;
