//! The egress proxy of a box: the only way from the box to the network.
//!
//! Its listening socket was created inside the box's network namespace before the command ran, and
//! is accepted on here. The namespace has no other route, so a program that ignores the proxy
//! reaches nothing, and without this process the box has no network access. The [`Gate`] decides
//! about a host before its name is looked up. The address is checked here, and exactly the checked
//! address is connected to.

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

/// Port of the proxy on the box's loopback. It is free, because the socket is created before any
/// process of the box.
pub(crate) const PORT: u16 = 3128;

const ADDRESS: &str = "http://127.0.0.1:3128";
/// Destinations inside the box, which programs reach without the proxy.
const OWN: &str = "localhost,127.0.0.1,::1";

/// Proxy variables for programs in the box. Some programs read only the lower-case names, some only
/// the others.
pub(crate) const ENVIRONMENT: [(&str, &str); 6] = [
    ("HTTP_PROXY", ADDRESS),
    ("HTTPS_PROXY", ADDRESS),
    ("NO_PROXY", OWN),
    ("http_proxy", ADDRESS),
    ("https_proxy", ADDRESS),
    ("no_proxy", OWN),
];

/// The host of a proxy request, if the request is well-formed.
pub(crate) fn target_host<T>(request: &hyper::Request<T>) -> Option<ringwall_policy::NetHost> {
    target::Target::read(request).ok().map(|target| target.host)
}
