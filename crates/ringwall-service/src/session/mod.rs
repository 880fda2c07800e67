//! Sessions: conversations whose code shares its files, from the first use until they are removed or nobody has used them for
//! long.
//!
//! A session is its files (`workspace`); what was said about it beyond the settings is in the record, and ends with them.
//! `place` finds one, `rules` says how its code is treated, `keep` makes, lists, changes and removes them, `files` reads and
//! writes what is in them beside the boxes.

pub(crate) mod code;
pub(crate) mod context;
mod exclusive;
mod files;
mod keep;
mod place;
pub(crate) mod residents;
mod rules;

pub use keep::{SessionFilter, SessionList, SessionView};
pub use rules::SessionChange;
