//! Running a piece of code in a session: assessed, decided, on record, asked about where it deserves that, and run in a box on
//! the session's files alone.
//!
//! From its order on it is an exec as all are. `request` is what is asked for; `assess` what it could do; `backend` how strong
//! a box it gets; `order` puts that together; `confirm` is the wait for a person, and `replace` what becomes of code that
//! they changed; `run` waits for the ending and tells it. `usual` is what is kept ready for whoever comes first.

mod backend;
mod confirm;
mod read;
mod replace;
mod run;
mod usual;
mod words;

pub use run::{CodeBegun, CodeRan};

pub(crate) use replace::goes_on_as;
