//! Crashes and leaks of `ringwall run`: after a kill of any process at any time, nothing is left on
//! the host.
//!
//! The tests run one at a time, because each checks all processes that this program started.
//! `RINGWALL_SOAK=1` runs the long forms.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

mod held;
mod killed;
mod leaks;
mod traces;
