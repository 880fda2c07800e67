//! Which names this server answers to, and which web pages may speak to it.
//!
//! A page in the operator's own browser can reach a loopback port; a hostile name server can make its name point there.
//! So a request that names a foreign host is misdirected (421), and one that a foreign page sends is forbidden (403),
//! with or without authentication. Nothing here looks at tokens.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderName, StatusCode, header};

use super::problem::Problem;

/// The names under which this server may be addressed.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Lower case, without ports.
    named: BTreeSet<String>,
    /// The address it listens on, when that is one address and not all of them.
    own: Option<IpAddr>,
}

impl Hosts {
    pub(crate) fn new(named: &[String], listening: SocketAddr) -> Self {
        let own = Some(listening.ip()).filter(|address| !address.is_unspecified());
        Hosts { named: named.iter().map(|name| name.to_ascii_lowercase()).collect(), own }
    }

    /// Says whether a request was meant for this server and does not come from somebody else's page.
    pub(crate) fn check(&self, request: &Parts) -> Result<(), Problem> {
        let misdirected = || {
            Problem::new(
                StatusCode::MISDIRECTED_REQUEST,
                "MISDIRECTED",
                "this server does not answer to that host name",
            )
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
            Some(Some(origin)) if is_same_place(origin, &host) => Ok(()),
            Some(Some(_)) | None => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "FOREIGN_ORIGIN",
                "requests from pages of another origin are refused",
            )),
        }
    }

    fn admit(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        is_loopback(&host) || self.named.contains(&host) || self.own.is_some_and(|own| address(&host) == Some(own))
    }
}

/// The header's one value; `Some(None)` when it is absent, `None` when there are several or it is no text.
fn only(request: &Parts, name: HeaderName) -> Option<Option<&str>> {
    let mut values = request.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Some(None),
        (Some(value), None) => value.to_str().ok().map(Some),
        (Some(_), Some(_)) => None,
    }
}

fn authority(text: &str) -> Option<Authority> {
    text.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'))
}

/// The same host and port as the request was sent to. The many names of loopback are one place; its ports are not,
/// because another program's pages live on another port.
fn is_same_place(origin: &str, host: &Authority) -> bool {
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

    fn answer(headers: &[(&str, &str)], target: &str) -> Option<u16> {
        let hosts = Hosts::new(&["Box.Example".to_owned()], "10.1.2.3:8003".parse().unwrap());
        let request = headers.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        hosts.check(&parts).err().map(|problem| problem.status().as_u16())
    }

    #[test]
    fn only_its_own_names_are_answered() {
        for good in
            ["localhost", "LOCALHOST:8003", "127.0.0.1:8003", "127.9.9.9", "[::1]:1", "box.example:443", "10.1.2.3"]
        {
            assert_eq!(answer(&[("host", good)], "/"), None, "{good}");
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
            assert_eq!(answer(&[("host", bad)], "/"), Some(421), "{bad}");
        }
        assert_eq!(answer(&[], "/"), Some(421));
        assert_eq!(answer(&[("host", "localhost"), ("host", "localhost")], "/"), Some(421));
        assert_eq!(answer(&[("host", "localhost")], "http://evil.example/"), Some(421));
        assert_eq!(answer(&[("host", "localhost")], "http://localhost/"), None);
    }

    #[test]
    fn only_its_own_pages_may_speak() {
        let asks = |origin: &str| answer(&[("host", "127.0.0.1:8003"), ("origin", origin)], "/");
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
        assert_eq!(answer(&[("host", "box.example"), ("origin", "https://box.example")], "/"), None);
        let twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost")];
        assert_eq!(answer(&twice, "/"), Some(403));
    }
}
