//! At which ports of the public internet pages are served.
//!
//! A browser that is taken over can ask for a connection to anything, and a tunnel carries whatever is put into it: mail, a
//! login to another machine. So below 1024, where the services of machines are, only the two of the web are reached; above,
//! all but those that browsers themselves open no page at, because other protocols can be spoken to there by a page.

/// By the list of bad ports of the WHATWG's Fetch standard, as far as they are not refused already.
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
    fn pages_are_not_where_mail_and_logins_are() {
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
