//! Code in sessions through the real binary, as contract 004 describes it: runs, confirmations,
//! sessions and their files, session boxes and browsers. Each test has its own server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

mod browser;
mod browser_asks;
mod browser_box;
mod browser_hostile;
mod browser_missing;
mod confirmation;
mod contexts;
mod files;
mod fixture;
mod pages;
mod processes;
mod run;
mod session_box;
mod session_box_faults;
mod session_rules;
mod sessions;
mod strict;
mod terminals;
