//! The browsers of sessions: their slots, the box and the process of each browser, and the hosts
//! that it may reach.

mod browser_box;
mod fault;
mod gate;
mod instance;
mod slots;

pub(crate) use browser_box::{BrowserBox, BrowserHost, grant};
pub(crate) use fault::Fault;
pub(crate) use gate::{BrowserGate, Reach, Refused};
pub(crate) use instance::{Instance, MISSING};
pub(crate) use slots::{BrowserSlot, Browsers, Stop, Turn};
