//! The browsers of sessions: one at a time for each, in a box as everything is, driven by nobody but the server.
//!
//! An *external* one has a box of its own, with nothing of the session's in it and the public internet behind a proxy that
//! judges every connection by its address. A *sandbox* one is a command in the session's own box, sees its files, and has the
//! network that the session's code has. `wish` is what is asked for; `seats` who has a browser and for how long; `home` its
//! box and `instance` the browser in it; `perform` one action from its record to its outcome, with `confirm` where a person
//! is asked, `files` for what goes in and out, and `stop` for who does not want it any more.

mod answer;
mod confirm;
mod files;
mod home;
mod perform;
mod view;
mod watch;
mod wish;

pub use answer::BrowserAnswer;
pub use perform::{BrowserBegun, BrowserRequest};
pub use view::{BrowserActionView, BrowserView};
