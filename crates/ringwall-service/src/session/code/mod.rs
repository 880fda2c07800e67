//! Runs code in a session: assesses it, decides, records the exec, asks for an approval if the risk
//! requires one, and runs it in a box that shows only the session's files.
//!
//! Once its order exists, the code is an exec like any other. `read` turns a request into that
//! order; `backend` chooses the backend and its isolation; `confirm` asks for the approval;
//! `replace` handles code that a person has edited; `run` waits for the outcome; `words` phrases
//! errors; `default` derives the kind of warm box that the pool keeps ready.

mod backend;
mod confirm;
mod default_spec;
mod read;
mod replace;
mod run;
mod words;

pub use run::CodeRan;
