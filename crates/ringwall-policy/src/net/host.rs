//! A host as a client names it: a DNS name in normal form, or an IP address.
//!
//! Parsing is strict, because other programs are lenient: many accept `2130706433`, `0x7f.1` and
//! `0177.0.0.1` as 127.0.0.1. A name that looks like a number but is no dotted IPv4 address is
//! rejected.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, quote};

const MAX_NAME_LEN: usize = 253;
const MAX_LABEL: usize = 63;

/// Names are lower case, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetHost {
    Name(String),
    Address(IpAddr),
}

impl FromStr for NetHost {
    type Err = Error;

    /// Parses ASCII text from a client; an IPv6 address must be in brackets.
    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).map_err(|wrong| Error::HostMalformed { given: quote(text), wrong })
    }
}

pub(super) fn read(text: &str) -> Result<NetHost, &'static str> {
    if let Some(inner) = text.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return address.map(|address| NetHost::Address(address.into())).ok_or("is not an IPv6 address");
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        return Err("is empty or longer than 253 characters");
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if is_number(last) {
        let address = name.parse::<Ipv4Addr>();
        return address
            .map(|address| NetHost::Address(address.into()))
            .map_err(|_| "is a number but not a dotted IPv4 address");
    }
    if !name.split('.').all(is_label) {
        return Err("is not a DNS name");
    }
    Ok(NetHost::Name(name))
}

/// True if lenient programs read a name with this last label as an address.
fn is_number(label: &str) -> bool {
    let digits = |text: &str, is_digit: fn(&char) -> bool| text.chars().all(|character| is_digit(&character));
    let decimal = !label.is_empty() && digits(label, char::is_ascii_digit);
    decimal || label.strip_prefix("0x").is_some_and(|rest| digits(rest, char::is_ascii_hexdigit))
}

fn is_label(label: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=MAX_LABEL).contains(&label.len())
        && label.bytes().all(is_plain)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl fmt::Display for NetHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetHost::Name(name) => formatter.write_str(name),
            NetHost::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            NetHost::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_normalised() {
        for (text, shown) in [
            ("pypi.org", "pypi.org"),
            ("PyPI.Org.", "pypi.org"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("a_b.example", "a_b.example"),
            ("1.example", "1.example"),
            ("0x7f.example", "0x7f.example"),
            ("203.0.113.7", "203.0.113.7"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
            ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"),
        ] {
            assert_eq!(text.parse::<NetHost>().map(|host| host.to_string()).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn lenient_address_is_rejected() {
        for text in [
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "127.1",
            "0177.0.0.1",
            "127.0.0.01",
            "127.0.0.0x1",
            "256.1.1.1",
            "1.2.3.4.5",
            "example.0x",
            "[::1",
            "::1",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
        ] {
            assert!(text.parse::<NetHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_name_is_rejected() {
        let long = format!("{}.example", "a".repeat(64));
        let longer = "a.".repeat(127) + "example";
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a..",
            "a b",
            "a/b",
            "a@b",
            "a:80",
            "a%2eb",
            "büch.example",
            "-a.b",
            "a-.b",
            "*.a.b",
            "a\0b",
            "a\nb",
            &long,
            &longer,
        ] {
            assert!(text.parse::<NetHost>().is_err(), "{text:?}");
        }
    }
}
