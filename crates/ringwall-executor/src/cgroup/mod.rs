//! Cgroups of boxes: where they can be made, their limits, reuse after a box, and the freezer.

pub(crate) mod cache;
pub(crate) mod freezer;
pub(crate) mod groups;
pub(crate) mod layout;
