//! IP addresses that a box must not reach: all that are not on the public internet.
//!
//! Follows IANA's registries of special-purpose addresses. An IPv6 address that embeds an IPv4
//! address in a well-known prefix (mapped, compatible, NAT64, 6to4, Teredo) is refused whatever
//! that address is, because the network's translation is unknown.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The special use of an address; `None` for a public internet address.
pub fn special_use(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_use_v4(address),
        IpAddr::V6(address) => special_use_v6(address),
    }
}

fn special_use_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [127, ..] => "the machine itself",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "a private network",
        [169, 254, ..] => "link-local, where clouds keep their metadata",
        [100, 64..=127, ..] => "a provider's shared network",
        // Azure's WireServer, which looks like a public address.
        [168, 63, 129, 16] => "a cloud's own service",
        [0, ..] => "not a host",
        [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] => "reserved for protocols and tests",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "reserved for examples",
        [224..=239, ..] => "multicast",
        [240..=255, ..] => "reserved",
        _ => return None,
    })
}

fn special_use_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("the machine itself");
    }
    if address.is_multicast() {
        return Some("multicast");
    }
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0, 0, ..] => "an IPv4 address in IPv6 notation",
        [0x64, 0xff9b, ..] | [0x2002, ..] => "a translated IPv4 address",
        [0xfc00..=0xfdff, ..] => "a private network",
        [0xfe80..=0xfebf, ..] => "link-local",
        // Includes Teredo (2001::/32), which embeds IPv4 addresses.
        [0x2001, 0..=0x1ff, ..] => "reserved for protocols and tests",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "reserved for examples",
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    })
}

/// The reason why the server itself must not call an address, even if configured: link-local
/// addresses and the addresses at which clouds serve credentials to the machine. Loopback and
/// private networks are allowed. An IPv4 address inside an IPv6 address (mapped, compatible, NAT64,
/// 6to4) is judged as the IPv4 address.
pub fn metadata_use(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => metadata_use_v4(address),
        IpAddr::V6(address) => match address.segments() {
            [0xfe80..=0xfebf, ..] => Some("link-local"),
            // AWS and Google Cloud.
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => Some("a cloud's metadata"),
            [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, .., high, low] | [0x2002, high, low, ..] => {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                metadata_use_v4(Ipv4Addr::new(a, b, c, d))
            }
            _ => None,
        },
    }
}

fn metadata_use_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [169, 254, ..] => Some("link-local, where clouds keep their metadata"),
        // Alibaba, Oracle and Azure.
        [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => Some("a cloud's metadata"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_address_is_found_in_every_notation() {
        for metadata in [
            "169.254.169.254",
            "169.254.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:100.100.100.200",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(metadata_use(metadata.parse().unwrap()).is_some(), "{metadata}");
        }
        for other in ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "100.100.100.201", "fd00:ec2::255", "1.1.1.1"] {
            assert_eq!(metadata_use(other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn special_address_is_not_public() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.1.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
        ] {
            assert_eq!(special_use(public.parse().unwrap()), None, "{public}");
        }
        for special in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.170",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:53aa:64c::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "4000::1",
            "5f00::1",
        ] {
            assert!(special_use(special.parse().unwrap()).is_some(), "{special}");
        }
    }
}
