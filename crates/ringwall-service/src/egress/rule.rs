//! The list of allowed hosts applied to one host, with the reason of a refusal. Used for commands
//! and browsers.

use ringwall_executor::egress::Ruling;
use ringwall_policy::{NOT_PUBLIC, Net, NetHost, NetList, UnknownHost, special_use};

#[derive(Debug)]
pub(crate) struct NetRule {
    net: Net,
    /// Hosts that may resolve to non-public addresses.
    lifted: NetList,
}

impl NetRule {
    pub(crate) fn new(net: Net, lifted: NetList) -> Self {
        Self { net, lifted }
    }

    /// `None` if a person has to be asked.
    pub(crate) fn judge(&self, host: &NetHost, port: u16) -> Option<Ruling> {
        let Net::Allowlist { allow, unknown } = &self.net else {
            return Some(Ruling::Refused("the box has no network".to_owned()));
        };
        if let Some(entry) = allow.find(host, port) {
            return Some(Ruling::Allowed(entry.to_string()));
        }
        match (unknown, host) {
            // Do not ask about an address that would be refused anyway.
            (UnknownHost::Ask, NetHost::Address(address))
                if special_use(*address).is_some() && self.lifted.find(host, port).is_none() =>
            {
                Some(Ruling::Refused(NOT_PUBLIC.to_owned()))
            }
            (UnknownHost::Ask, _) => None,
            (UnknownHost::Deny, _) => {
                Some(Ruling::Refused("it is not among the hosts that this box may reach (net.allow)".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proxy refuses spellings that are no host before this rule is applied.
    #[test]
    fn listed_host_is_allowed_in_any_spelling() {
        let allow = NetList::read(["good.com", "*.below.com"]).unwrap();
        let lifted = NetList::read(["10.0.0.1"]).unwrap();
        for unknown in [UnknownHost::Deny, UnknownHost::Ask] {
            let rule = NetRule::new(Net::Allowlist { allow: allow.clone(), unknown }, lifted.clone());
            let judge = |host: &str, port: u16| rule.judge(&host.parse().unwrap(), port);
            for (host, port) in [("good.com", 443), ("GOOD.com.", 80), ("a.below.com", 443)] {
                assert!(matches!(judge(host, port), Some(Ruling::Allowed(_))), "{host}:{port}");
            }
            for (host, port) in [
                ("good.com.evil.com", 443),
                ("evilgood.com", 443),
                ("a.good.com", 443),
                ("below.com", 443),
                ("good.com", 8443),
                ("8.8.8.8", 443),
                ("10.0.0.1", 443),
            ] {
                assert_eq!(judge(host, port).is_none(), unknown == UnknownHost::Ask, "{host}:{port}");
            }
            // Addresses that are always refused cause no question.
            for (host, port) in [("127.0.0.1", 80), ("[::ffff:127.0.0.1]", 80), ("10.0.0.1", 22)] {
                assert!(matches!(judge(host, port), Some(Ruling::Refused(_))), "{host}:{port}");
            }
        }
        let none = NetRule::new(Net::None, lifted);
        assert!(matches!(none.judge(&"good.com".parse().unwrap(), 443), Some(Ruling::Refused(_))));
    }
}
