//! Black-box tests of `ringwall run` and `ringwall image`, as root and as an ordinary user.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

mod modes;
mod product;

mod compatibility;
mod endings;
mod environment;
mod exits;
mod hostile_images;
mod image_privileges;
mod images;
mod inheritance;
mod messages;
mod plan;
mod refusals;
mod report;
mod rootfs;
mod streams;
mod terminal;
mod workspace;
