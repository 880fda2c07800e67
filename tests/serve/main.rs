//! The contract of `ringwall serve` and of the verbs around it, checked through the real binary and over real sockets.
//! One file per theme. These tests know the routes, the statuses and the bodies, never how they come about.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

mod server;

mod access;
mod artifacts;
mod endings;
mod events;
mod execs;
mod lives;
mod refusals;
mod verbs;
