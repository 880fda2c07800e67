//! The way out of a box: a proxy that answers at the one port of its loopback behind which somebody is.
//!
//! The listening socket was made inside the box's network namespace, before anything of the command ran, and is accepted on
//! here; there is no other route, so that whoever ignores the proxy reaches nothing, and without this process there is no
//! way out at all. Whether a host may be reached is the [`Gate`]'s to say, before its name is looked up; whether an
//! *address* may be is said here, of the very address that is then connected to.

mod connect;
mod forward;
mod gate;
mod meter;
mod proxy;
mod resolve;
mod target;

#[cfg(test)]
mod tests;

pub use gate::{Connection, Fate, Gate, Ruling};
pub use proxy::Proxy;
pub use resolve::Resolver;

/// Where the box finds us, on its own loopback. Nobody else can have taken it: nothing ran before.
pub(crate) const PORT: u16 = 3128;

const ADDRESS: &str = "http://127.0.0.1:3128";
/// What is in the box is reached without us.
const OWN: &str = "localhost,127.0.0.1,::1";

/// What tells programs in the box where the way out is. Some read the small letters alone, some the others.
pub(crate) const ENVIRONMENT: [(&str, &str); 6] = [
    ("HTTP_PROXY", ADDRESS),
    ("HTTPS_PROXY", ADDRESS),
    ("NO_PROXY", OWN),
    ("http_proxy", ADDRESS),
    ("https_proxy", ADDRESS),
    ("no_proxy", OWN),
];
