//! Runs code in a session: assesses it, decides, records the exec, asks for an approval if the risk
//! requires one, and runs it in a box that shows only the session's files.
//!
//! `read` turns a request into an exec like any other; `choose_box` chooses its backend and
//! isolation; `confirm` asks for the approval; `run` waits for the outcome and phrases errors.

mod choose_box;
mod confirm;
mod read;
mod run;

pub use run::CodeRan;
