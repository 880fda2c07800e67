//! Browsers of sessions: at most one per session, each in a box, controlled only by the server.
//!
//! An *external* browser has its own box without session files. It reaches the public internet
//! through a proxy that checks the address of every connection. A *sandbox* browser is a process in
//! the session's box: it sees the session's files and has the network of the session's code.
//!
//! - `request`: parses an action. `perform`: one action from its record to its outcome.
//! - `confirm`: approval of risky actions. `files`: uploads and downloads. `watch`: idle timeout.
//! - `home`: the browser's box. `boxes/browser`: `slots` limits browsers and their lifetime, `instance` is the running browser, `stop` cancels actions.

mod answer;
mod confirm;
mod files;
mod home;
mod perform;
mod request;
mod view;
mod watch;

pub use answer::BrowserAnswer;
pub use perform::{BrowserBegun, BrowserRequest};
pub use view::{BrowserActionView, BrowserView};
