//! THE USE CASES: who asks, and in what order things happen; the same methods for every door.

pub mod skills;
