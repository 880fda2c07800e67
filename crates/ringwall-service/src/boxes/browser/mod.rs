//! Browsers of sessions: the slots, the box and the process of each browser, and the hosts that it
//! may reach.

mod fault;
mod gate;
mod home;
mod instance;
mod slots;
mod stop;

pub(crate) use fault::Fault;
pub(crate) use gate::{BrowserGate, Reach, Refused};
pub(crate) use home::{BrowserHost, Home, grant};
pub(crate) use instance::{Instance, MISSING};
pub(crate) use slots::{BrowserSlot, Browsers, Turn};
pub(crate) use stop::Stop;
