//! One entry of a list: a name or all subdomains of a name, and one port.

use std::fmt;

use crate::error::{Error, quote};

use super::host::{NetHost, read};

/// Ports of an entry without a port.
pub(super) const DEFAULT_PORTS: [u16; 2] = [80, 443];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetEntry {
    pub(super) pattern: Pattern,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Pattern {
    Exact(NetHost),
    /// All subdomains of this name, but not the name itself.
    Below(String),
}

impl NetEntry {
    /// Exactly this host and port.
    pub fn exact(host: NetHost, port: u16) -> Self {
        Self { pattern: Pattern::Exact(host), port }
    }

    /// Parses `name`, `name:port`, `*.name` or `*.name:port`; in the first two an address may
    /// replace `name`. Without a port the result has one entry for each of [`DEFAULT_PORTS`]. A
    /// name in another script becomes its DNS form (Punycode).
    pub fn read(text: &str) -> Result<Vec<Self>, Error> {
        let wrong = |wrong: &'static str| Error::NetEntryMalformed { given: quote(text), wrong };
        let (host, port) = match text.rsplit_once(':') {
            // In `[address]` the colons belong to the address.
            Some((_, rest)) if rest.ends_with(']') => (text, None),
            Some((host, port)) => (host, Some(read_port(port).ok_or_else(|| wrong("has no valid port (1 to 65535)"))?)),
            None => (text, None),
        };
        let pattern = match host.strip_prefix("*.") {
            Some(above) => below(above),
            None => ascii(host).and_then(|host| read(&host)).map(Pattern::Exact),
        };
        let pattern = pattern.map_err(wrong)?;
        let ports = port.map_or_else(|| DEFAULT_PORTS.to_vec(), |port| vec![port]);
        Ok(ports.into_iter().map(|port| Self { pattern: pattern.clone(), port }).collect())
    }

    pub fn matches(&self, host: &NetHost, port: u16) -> bool {
        self.port == port && self.pattern.covers(&Pattern::Exact(host.clone()))
    }

    /// True if this entry allows everything that `other` allows.
    pub fn covers(&self, other: &Self) -> bool {
        self.port == other.port && self.pattern.covers(&other.pattern)
    }
}

fn below(above: &str) -> Result<Pattern, &'static str> {
    match ascii(above).and_then(|above| read(&above))? {
        NetHost::Name(name) if name.contains('.') => Ok(Pattern::Below(name)),
        NetHost::Name(_) => Err("would allow a whole top-level domain"),
        NetHost::Address(_) => Err("is an address and has no subdomains"),
    }
}

/// The DNS form of a name.
fn ascii(name: &str) -> Result<String, &'static str> {
    match name.is_ascii() {
        true => Ok(name.to_owned()),
        false => idna::domain_to_ascii_strict(name).map_err(|_| "is not a DNS name"),
    }
}

/// Digits only: `parse` alone accepts a leading `+`.
fn read_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

impl Pattern {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Pattern::Exact(own), Pattern::Exact(other)) => own == other,
            (Pattern::Exact(_), Pattern::Below(_)) | (Pattern::Below(_), Pattern::Exact(NetHost::Address(_))) => false,
            (Pattern::Below(above), Pattern::Exact(NetHost::Name(name))) => is_below(name, above),
            (Pattern::Below(above), Pattern::Below(other)) => other == above || is_below(other, above),
        }
    }
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_suffix(above).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(host) => write!(formatter, "{host}"),
            Pattern::Below(above) => write!(formatter, "*.{above}"),
        }
    }
}

impl fmt::Display for NetEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.pattern, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<NetEntry> {
        NetEntry::read(text).unwrap()
    }

    fn allows(entry: &str, host: &str, port: u16) -> bool {
        let host: NetHost = host.parse().unwrap();
        entries(entry).iter().any(|entry| entry.matches(&host, port))
    }

    #[test]
    fn entry_matches_listed_host_and_port_only() {
        for (entry, host, port) in [
            ("good.com", "good.com", 443),
            ("good.com", "good.com", 80),
            ("GOOD.com.", "good.com.", 443),
            ("good.com:8443", "good.com", 8443),
            ("*.good.com", "a.good.com", 443),
            ("*.good.com", "b.a.good.com", 80),
            ("bücher.example", "xn--bcher-kva.example", 443),
            ("203.0.113.7:22", "203.0.113.7", 22),
            ("[2001:db8::1]:443", "[2001:DB8:0::1]", 443),
            ("[2001:db8::1]", "[2001:db8::1]", 80),
        ] {
            assert!(allows(entry, host, port), "{entry} {host}:{port}");
        }
        for (entry, host, port) in [
            ("good.com", "good.com.evil.com", 443),
            ("good.com", "evilgood.com", 443),
            ("good.com", "a.good.com", 443),
            ("good.com", "good.com", 22),
            ("good.com:8443", "good.com", 443),
            ("*.good.com", "good.com", 443),
            ("*.good.com", "evilgood.com", 443),
            ("*.good.com", "a.good.com.evil.com", 443),
            ("203.0.113.7", "203.0.113.8", 443),
        ] {
            assert!(!allows(entry, host, port), "{entry} {host}:{port}");
        }
    }

    #[test]
    fn malformed_entry_is_rejected() {
        for text in [
            "",
            "*",
            "*.",
            "*.com",
            "*good.com",
            "a.*.com",
            "*.10.0.0.1",
            "http://good.com",
            "good.com/",
            "good.com:",
            "good.com:0",
            "good.com:+80",
            "good.com:080",
            "good.com:65536",
            "good.com:80:80",
            "good.com:http",
            "2130706433",
            "127.1",
            "2001:db8::1",
            "10.0.0.0/8",
            "a b",
            "user@good.com",
            "[::1]x",
            "bü cher.example",
        ] {
            let error = NetEntry::read(text).expect_err(text).to_string();
            assert!(error.starts_with('"') && error.contains("pypi.org"), "{error}");
        }
    }

    #[test]
    fn entry_covers_narrower_entry() {
        let covers = |one: &str, other: &str| entries(one)[0].covers(&entries(other)[0]);
        assert!(covers("*.a.com:80", "*.b.a.com:80") && covers("*.a.com:80", "b.a.com:80"));
        assert!(covers("*.a.com:80", "*.a.com:80") && covers("a.com:80", "a.com:80"));
        assert!(!covers("*.b.a.com:80", "*.a.com:80") && !covers("b.a.com:80", "*.a.com:80"));
        assert!(!covers("a.com:80", "a.com:443") && !covers("*.a.com:80", "*.ba.com:80"));
    }
}
