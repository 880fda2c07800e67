//! Browsers of sessions: at most one per session, each in a box, controlled only by the server.
//!
//! An *external* browser has its own box without session files. It reaches the public internet
//! through a proxy that checks the address of every connection. A *sandbox* browser is a process in
//! the session's box: it sees the session's files and has the network of the session's code.
//!
//! - `request` parses an action; `perform` runs one action from its record to its outcome.
//! - `confirm` asks for approval of risky actions; `files` copies uploads and downloads.
//! - `browser_box` starts the browser's box and closes idle browsers; `view` is the API's output.
//! - `boxes/browser`: `slots` limits the number of browsers, `instance` is a running browser,
//!   `stop` cancels actions.

mod browser_box;
mod confirm;
mod files;
mod perform;
mod request;
mod view;

pub use perform::{BrowserBegun, BrowserRequest};
pub use view::{BrowserActionView, BrowserAnswer, BrowserView};
