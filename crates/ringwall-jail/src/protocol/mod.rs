//! Messages between the executor and the processes of a box: plan, reports and their encoding.

pub mod plan;
pub mod report;
pub mod wire;
