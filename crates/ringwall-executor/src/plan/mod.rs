//! Turns a grant and facts about the host into a plan for the jail. Pure.

pub(crate) mod frame;
pub(crate) mod limits;
pub(crate) mod lower;
pub(crate) mod masks;
