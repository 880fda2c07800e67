//! Code in sessions, through the real binary: running it, who is asked about it, the sessions themselves and their files, from
//! the contract's text. Every trial has a server of its own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]

mod browser;
mod browser_asks;
mod browser_box;
mod browser_hostile;
mod browser_missing;
mod confirm;
mod contexts;
mod faults;
mod files;
mod lasting;
mod pages;
mod residents;
mod run;
mod session_rules;
mod sessions;
mod site;
mod strict;
mod terminals;
