//! Skills: commands that an operator vouches for, each described by a manifest.
//!
//! A manifest says what a skill takes, what it runs, and what it may touch. Here manifests are read, judged and kept; a
//! call of a skill is turned into its inputs, a command, a policy layer and the mounts it may have. Nothing is run
//! here, and no right comes from here: a layer only narrows, and what is executed goes through `ringwall_policy::decide` like
//! anything else.
//!
//! All calls block on the file system; an async caller gives them a thread.
//!
//! Reading order: a folder's file becomes a [`Skill`] or the reasons why not; [`Skills`] keeps them; a [`Call`] is what
//! somebody asks of one; a [`Command`] is what is then executed.

mod document;
mod error;
mod reasons;
mod survey;

mod manifest;
mod skill;

mod folder;
mod shipped;

mod shelf;

mod call;
mod command;
mod inputs;

#[cfg(test)]
mod laws;
pub(crate) mod names;

pub use call::{Call, RESERVED};
pub use command::{Command, INPUTS_VARIABLE};
pub use error::{Error, InvalidArgument, InvalidInput};
pub use manifest::InvalidManifest;
pub use shelf::{Catalogue, Found, Skills};
pub use skill::{Interface, Permissions, Runtime, RuntimeKind, Skill};
