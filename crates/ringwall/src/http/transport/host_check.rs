//! Checks `Host` and `Origin`: protection against DNS rebinding and against requests from foreign
//! web pages.
//!
//! A page in the operator's browser can reach a loopback port, and a hostile name server can make
//! its own name point there. A request for a foreign host is 421, one from a page of another origin
//! 403, with or without authentication.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderName, StatusCode, header};

use super::body::only_header;
use super::problem::Problem;

/// The names and the address under which this server may be addressed. Loopback names are always
/// accepted.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Lower case, without ports.
    names: BTreeSet<String>,
    /// The listening address, unless that is a wildcard (`0.0.0.0`, `::`).
    own: Option<IpAddr>,
}

impl Hosts {
    pub(crate) fn new(names: &[String], listening: SocketAddr) -> Self {
        let own = Some(listening.ip()).filter(|address| !address.is_unspecified());
        Hosts { names: names.iter().map(|name| name.to_ascii_lowercase()).collect(), own }
    }

    /// Rejects a request for another host or from a page of another origin.
    pub(crate) fn check(&self, request: &Parts) -> Result<(), Problem> {
        let misdirected = || {
            Problem::new(StatusCode::MISDIRECTED_REQUEST, "MISDIRECTED", "this server does not accept that host name")
                .with_hint("add the name to server.allowed_hosts, or use a loopback address")
        };
        let host = only(request, header::HOST).flatten().and_then(authority).ok_or_else(misdirected)?;
        let is_contradicted =
            request.uri.authority().is_some_and(|target| !target.as_str().eq_ignore_ascii_case(host.as_str()));
        if is_contradicted || !self.admit(host.host()) {
            return Err(misdirected());
        }
        match only(request, header::ORIGIN) {
            Some(None) => Ok(()),
            Some(Some(origin)) if is_same_origin(origin, &host) => Ok(()),
            Some(Some(_)) | None => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "FOREIGN_ORIGIN",
                "requests from web pages of another origin are rejected",
            )),
        }
    }

    fn admit(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        is_loopback(&host) || self.names.contains(&host) || self.own.is_some_and(|own| address(&host) == Some(own))
    }
}

/// The header's only value; `Some(None)` if it is absent, `None` if there are several or it is not
/// ASCII text.
fn only(request: &Parts, name: HeaderName) -> Option<Option<&str>> {
    if !request.headers.contains_key(&name) {
        return Some(None);
    }
    only_header(&request.headers, name)?.to_str().ok().map(Some)
}

fn authority(text: &str) -> Option<Authority> {
    text.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'))
}

/// True if the origin's host and port are those that the request was sent to. All loopback names
/// count as one host; ports must be equal, because another port belongs to another program.
fn is_same_origin(origin: &str, host: &Authority) -> bool {
    let bare = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let Some(page) = bare.and_then(authority) else { return false };
    if page.as_str().eq_ignore_ascii_case(host.as_str()) {
        return true;
    }
    page.port_u16() == host.port_u16()
        && is_loopback(&page.host().to_ascii_lowercase())
        && is_loopback(&host.host().to_ascii_lowercase())
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || address(host).is_some_and(|address| address.is_loopback())
}

fn address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status_of(headers: &[(&str, &str)], target: &str) -> Option<u16> {
        let hosts = Hosts::new(&["Box.Example".to_owned()], "10.1.2.3:8003".parse().unwrap());
        let request = headers.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        hosts.check(&parts).err().map(|problem| problem.status().as_u16())
    }

    #[test]
    fn foreign_host_is_misdirected() {
        for good in
            ["localhost", "LOCALHOST:8003", "127.0.0.1:8003", "127.9.9.9", "[::1]:1", "box.example:443", "10.1.2.3"]
        {
            assert_eq!(status_of(&[("host", good)], "/"), None, "{good}");
        }
        let bad = [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "10.1.2.4",
            "u@localhost",
            "",
            "a b",
            "0.0.0.0",
            "2130706433",
        ];
        for bad in bad {
            assert_eq!(status_of(&[("host", bad)], "/"), Some(421), "{bad}");
        }
        assert_eq!(status_of(&[], "/"), Some(421));
        assert_eq!(status_of(&[("host", "localhost"), ("host", "localhost")], "/"), Some(421));
        assert_eq!(status_of(&[("host", "localhost")], "http://evil.example/"), Some(421));
        assert_eq!(status_of(&[("host", "localhost")], "http://localhost/"), None);
    }

    #[test]
    fn foreign_origin_is_forbidden() {
        let asks = |origin: &str| status_of(&[("host", "127.0.0.1:8003"), ("origin", origin)], "/");
        for good in ["http://127.0.0.1:8003", "http://localhost:8003", "http://[::1]:8003"] {
            assert_eq!(asks(good), None, "{good}");
        }
        let bad = [
            "null",
            "",
            "http://evil.example",
            "http://localhost:3000",
            "http://127.0.0.1",
            "file://",
            "http://localhost:8003@evil.example",
        ];
        for bad in bad {
            assert_eq!(asks(bad), Some(403), "{bad}");
        }
        assert_eq!(status_of(&[("host", "box.example"), ("origin", "https://box.example")], "/"), None);
        let twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost")];
        assert_eq!(status_of(&twice, "/"), Some(403));
    }
}
