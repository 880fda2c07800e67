//! What a box may reach by its list, in the words in which a refusal is told; the same for its commands and its browser.

use ringwall_executor::egress::Ruling;
use ringwall_policy::{NOT_PUBLIC, Net, NetHost, NetList, UnknownHost, special_use};

#[derive(Debug)]
pub(crate) struct NetRule {
    net: Net,
    /// Hosts that may lead to any address.
    lifted: NetList,
}

impl NetRule {
    pub(crate) fn new(net: Net, lifted: NetList) -> Self {
        Self { net, lifted }
    }

    /// Nothing where a person has to be asked.
    pub(crate) fn judge(&self, host: &NetHost, port: u16) -> Option<Ruling> {
        let Net::Allowlist { allow, unknown } = &self.net else {
            return Some(Ruling::Refused("the box has no network".to_owned()));
        };
        if let Some(entry) = allow.find(host, port) {
            return Some(Ruling::Allowed(entry.to_string()));
        }
        match (unknown, host) {
            // Nobody is bothered with what would be refused all the same.
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

    /// Spellings that are no host at all are refused before anybody is asked; the proxy reads them.
    #[test]
    fn what_is_listed_is_reached_however_it_is_spelt() {
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
            // Nobody is asked about what is refused in any case.
            for (host, port) in [("127.0.0.1", 80), ("[::ffff:127.0.0.1]", 80), ("10.0.0.1", 22)] {
                assert!(matches!(judge(host, port), Some(Ruling::Refused(_))), "{host}:{port}");
            }
        }
        let none = NetRule::new(Net::None, lifted);
        assert!(matches!(none.judge(&"good.com".parse().unwrap(), 443), Some(Ruling::Refused(_))));
    }
}
