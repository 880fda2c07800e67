//! The boxes of sessions: code with the backend `aio` runs in the one box of its session, and finds there what was left.
//!
//! `boxes` keeps them, at most one for a session; `start` brings an exec into its own; `process` is for those
//! that nobody waits for; `turn` pauses and resumes one. An
//! exec in such a box is an exec like any other: decided, recorded, limited, listed, cancelled.

mod boxes;
mod process;
mod start;
mod turn;

pub(crate) use boxes::SessionBoxes;
pub(crate) use process::ProcessReins;
pub use process::{AfterInput, ProcessOutput};
pub(crate) use start::OnVisit;
