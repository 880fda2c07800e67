//! Crashes and leaks: whatever is killed, and whenever, the host is soon as it was. Every test runs alone, because each
//! compares the whole of what it started with nothing. `RINGWALL_SOAK=1` runs the long forms.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

mod held;
mod killed;
mod leaks;
mod traces;
