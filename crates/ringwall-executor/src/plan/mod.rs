//! HEAD MISSING: say what this folder does.

pub(crate) mod etc;
pub(crate) mod frame;
pub(crate) mod limits;
pub(crate) mod lower;
pub(crate) mod masks;
