//! Contexts: interpreters in a session box that live on between execs, so that variables and
//! imports persist and values are returned in rich forms (HTML, PNG, JSON).
//!
//! `cell` runs code in a context as an exec; `keep` lists, interrupts, restarts and deletes
//! contexts. The interpreters, their runners and the parser of their answers are in `crate::boxes`.

mod cell;
mod keep;

pub use keep::{ContextAddress, ContextView};
