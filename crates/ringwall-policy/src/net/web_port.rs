//! The ports at which browsers may open pages of the public internet.
//!
//! A compromised browser could use any TCP port for other protocols, such as mail or SSH. Below
//! 1024, the range of such services, only 80 and 443 are allowed. Above, all ports are allowed
//! except those that browsers block too, because a page could speak another protocol to them.

/// The bad ports of the WHATWG Fetch standard from 1024 on.
const BAD: [u16; 19] =
    [1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080];

pub fn is_web_port(port: u16) -> bool {
    match port {
        80 | 443 => true,
        0..1024 => false,
        other => !BAD.contains(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_of_other_service_is_not_a_web_port() {
        for port in [80, 443, 1024, 3000, 5000, 8000, 8080, 8443, 8888, 65535] {
            assert!(is_web_port(port), "{port}");
        }
        for port in
            [0, 1, 21, 22, 23, 25, 53, 110, 143, 389, 445, 465, 587, 636, 853, 993, 1023, 2049, 5060, 6000, 6667]
        {
            assert!(!is_web_port(port), "{port}");
        }
    }
}
