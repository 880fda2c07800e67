//! Messages between the server and the processes around a box: the plan, the reports, and their encoding.

pub mod plan;
pub mod report;
pub mod wire;
