//! Tests on a real file system with files that a hostile box may create.
//!
//! The tests run as the current user. If that is root, the workspace has a user of its own, and one
//! test runs all others again as an unprivileged user. A canary outside of the workspaces shows
//! whether an operation left them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed assumption is a failed test; the tests look at the disk by name and run themselves as others"
)]

mod agent_files;
mod agent_races;
mod collecting;
mod fixture;
mod full_disk;
mod hostile;
mod hostile_zips;
mod inputs;
mod lifecycle;
mod names;
mod ownership;
mod races;
mod recycle;
mod removing;
mod session_pages;
mod skills;
mod texts;
mod unprivileged;
mod usage;
mod zips;
