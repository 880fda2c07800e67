//! Skills with a manifest: commands that an operator provides.
//!
//! A manifest states what a skill takes, runs and may touch. This module reads and validates
//! manifests, and turns a call into inputs, a command, a policy layer and mounts. It runs nothing
//! and grants nothing: a layer only narrows, and the command goes through
//! `ringwall_policy::decide`.
//!
//! All functions block on the file system; async callers use a blocking thread.
//!
//! A folder's file becomes a [`Skill`] or a list of reasons; [`Skills`] caches them; a [`Call`] is
//! a request; a [`Command`] is what is executed.

mod error;
mod reasons;
mod schema;
mod schema_size;

mod manifest;
mod skill;

mod folder;
mod shipped;

mod cache;

mod call;
mod command;
mod inputs;

#[cfg(test)]
mod laws;

pub use cache::{Catalogue, Found, Skills};
pub use call::{Call, RESERVED};
pub use command::{Command, INPUTS_VARIABLE};
pub use error::{Error, InvalidInput};
pub use manifest::InvalidManifest;
pub use skill::{Interface, Permissions, Runtime, RuntimeKind, Skill};
