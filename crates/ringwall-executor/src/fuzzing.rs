//! Entry points of the fuzz targets (`fuzz/`) into parsers of this crate. Not part of its interface.

use hyper::Request;
use ringwall_policy::NetHost;

use crate::{egress, image};

/// Reads all entries of an image archive with their content.
pub fn read_archive(bytes: &[u8]) {
    let _ = image::read_entries(bytes);
}

/// Reads the records of a pax extension header.
pub fn read_pax(bytes: &[u8]) {
    let _ = image::read_pax(bytes);
}

/// Reads `METHOD target` as the egress proxy does. Returns the accepted host, and what its text is read as.
pub fn read_egress_target(bytes: &[u8]) -> Option<(NetHost, NetHost)> {
    let (method, target) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    let request = Request::builder().method(method).uri(target).body(()).ok()?;
    let host = egress::target_host(&request)?;
    let again = host.to_string().parse().ok()?;
    Some((host, again))
}
