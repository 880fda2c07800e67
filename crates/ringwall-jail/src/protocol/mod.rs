//! HEAD MISSING: say what this folder does.

pub mod plan;
pub mod report;
pub mod wire;
