//! Hostile files against the real file system: as root with a user of the workspace's own, and without privileges.
//!
//! Every test runs as whoever runs the tests; as root, one of them runs all others again as a user without rights.
//! The verdict rests on a canary outside the workspaces and on what lies on the disk afterwards.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed assumption is a failed test; the tests look at the disk by name and run themselves as others"
)]

mod again;
mod agent_files;
mod agent_races;
mod collecting;
mod full_disk;
mod hostile;
mod hostile_zips;
mod inputs;
mod lab;
mod lifecycle;
mod names;
mod ownership;
mod races;
mod removing;
mod session_pages;
mod skills;
mod spare;
mod texts;
mod usage;
mod zips;
