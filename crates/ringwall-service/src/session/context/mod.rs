//! Contexts: interpreters that stay between runs, in the box of their session, so that variables and imports are there in the
//! next run and values come back in rich forms.
//!
//! `session_box` is a box of the pool with its contexts; `interpreter` is one of them, started and talked to by the runners
//! beside this file; `cell` is one run in it, as an exec sees it; `answer` reads what an interpreter says, which is believed
//! nothing: the code that runs there could say it just as well. `keep` lists, interrupts, restarts and ends them.

mod cell;
mod keep;

pub use keep::{ContextAddress, ContextView};
