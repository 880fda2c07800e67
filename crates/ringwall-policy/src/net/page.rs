//! Which URLs a browser may open.
//!
//! URLs are parsed by the WHATWG rules, as browsers do: to them `http:\\0x7f.1`, `2130706433` and
//! digits of other scripts are 127.0.0.1. The browser opens the serialised form of what was judged.
//! The addresses of a name are judged by the proxy when it connects.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::address::special_use;
use super::host::NetHost;
use super::web_port::is_web_port;
use crate::error::{Error, quote};

/// The only files that pages may be: those of a session, in its own box.
const FILES: &str = "/workspace";

/// The box of a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrowserKind {
    /// A box of its own, without the session's files.
    External,
    /// The box of its session, with its files.
    Sandbox,
}

impl BrowserKind {
    pub const fn key(self) -> &'static str {
        match self {
            BrowserKind::External => "external",
            BrowserKind::Sandbox => "sandbox",
        }
    }
}

/// What external browsers may reach. Ordered from wide to strict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalMode {
    /// The public internet, and the hosts of `browser.allowed_hosts`.
    #[default]
    On,
    /// The hosts of `browser.allowed_hosts` only.
    Allowlist,
    /// External browsers are turned off.
    Off,
}

impl ExternalMode {
    pub const fn key(self) -> &'static str {
        match self {
            ExternalMode::On => "on",
            ExternalMode::Allowlist => "allowlist",
            ExternalMode::Off => "off",
        }
    }

    /// The reason for refusing this host without resolving its name, if it is not in
    /// `browser.allowed_hosts`.
    pub fn refusal(self, host: &NetHost, port: u16) -> Option<String> {
        match (self, host) {
            (ExternalMode::Off, _) => Some("external browsers are turned off (browser.external)".to_owned()),
            (ExternalMode::Allowlist, _) => {
                Some("it is not among the hosts that external browsers may reach (browser.allowed_hosts)".to_owned())
            }
            (ExternalMode::On, NetHost::Address(address)) if special_use(*address).is_some() => {
                Some(NOT_PUBLIC.to_owned())
            }
            (ExternalMode::On, _) if !is_web_port(port) => {
                Some(format!("port {port} is not a web port; an operator may allow it in browser.allowed_hosts"))
            }
            (ExternalMode::On, _) => None,
        }
    }
}

/// The reason for refusing an IP address.
pub const NOT_PUBLIC: &str = "it is not a public internet address";

/// Returns the URL to open. `is_allowed` is true for the hosts and ports of the operator's lists,
/// which are allowed even if the address is not public or the port is not a web port. For a sandbox
/// browser the proxy also applies the session's network policy.
pub fn check_page(
    text: &str,
    (kind, external): (BrowserKind, ExternalMode),
    is_allowed: impl Fn(&NetHost, u16) -> bool,
) -> Result<String, Error> {
    let refuse = |wrong: String| Error::PageRefused { given: quote(text), wrong };
    let url = Url::parse(text).map_err(|error| refuse(format!("is not a complete URL ({error})")))?;
    match (url.scheme(), kind) {
        ("http" | "https", BrowserKind::External) => check_host(&url, is_allowed, Some(external)).map_err(refuse)?,
        ("http" | "https", BrowserKind::Sandbox) => check_host(&url, is_allowed, None).map_err(refuse)?,
        ("about", _) if url.path() == "blank" => {}
        ("file", BrowserKind::Sandbox) => check_file(&url).map_err(refuse)?,
        ("file", BrowserKind::External) => {
            return Err(refuse(
                "is a file URL, which only the sandbox browser opens (context.needs_file_access)".into(),
            ));
        }
        (scheme, _) => return Err(refuse(format!("has the scheme {scheme}; use http, https or about:blank"))),
    }
    Ok(url.into())
}

/// The host and port of a URL.
pub fn page_host(text: &str) -> Option<(NetHost, u16)> {
    let url = Url::parse(text).ok()?;
    let host = match url.host()? {
        Host::Domain(name) => name.parse().ok()?,
        Host::Ipv4(address) => NetHost::Address(IpAddr::V4(address)),
        Host::Ipv6(address) => NetHost::Address(IpAddr::V6(address)),
    };
    Some((host, url.port_or_known_default()?))
}

fn check_host(
    url: &Url,
    is_allowed: impl Fn(&NetHost, u16) -> bool,
    external: Option<ExternalMode>,
) -> Result<(), String> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user name or password; type them into the page instead".to_owned());
    }
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err("has no host".to_owned());
    };
    let host = match host {
        Host::Domain(name) => name.parse().map_err(|error: Error| error.to_string())?,
        Host::Ipv4(address) => NetHost::Address(IpAddr::V4(address)),
        Host::Ipv6(address) => NetHost::Address(IpAddr::V6(address)),
    };
    if is_allowed(&host, port) {
        return Ok(());
    }
    let why = match &host {
        NetHost::Address(address) => special_use(*address),
        NetHost::Name(name) => (name == "localhost" || name.ends_with(".localhost")).then_some("the machine itself"),
    };
    match (why, external.and_then(|external| external.refusal(&host, port))) {
        (Some(why), _) => Err(format!(
            "leads to {host}:{port}, which is not a public internet address ({why}); an operator may allow it in \
             browser.allowed_hosts"
        )),
        (None, Some(why)) => Err(format!("leads to {host}:{port}: {why}")),
        (None, None) => Ok(()),
    }
}

/// `to_file_path` decodes percent-escapes once, as the browser does.
fn check_file(url: &Url) -> Result<(), String> {
    let outside = || format!("is not a file in {FILES}");
    let path = url.to_file_path().map_err(|()| outside())?;
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    if is_plain && path.starts_with(FILES) { Ok(()) } else { Err(outside()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::NetList;

    fn check(text: &str, kind: BrowserKind) -> Result<String, String> {
        let allowed = NetList::read(["127.0.0.1:8080", "localhost:8080"]).unwrap();
        check_page(text, (kind, ExternalMode::On), |host, port| allowed.find(host, port).is_some())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn public_url_is_normalised() {
        for (text, opened) in [
            ("https://Example.com", "https://example.com/"),
            ("http:\\\\example.com\\a", "http://example.com/a"),
            ("  https://example.com/a b ", "https://example.com/a%20b"),
            ("https://8.8.8.8/", "https://8.8.8.8/"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
            ("about:blank", "about:blank"),
            ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080/x"),
            ("http://0x7f.1:8080/x", "http://127.0.0.1:8080/x"),
            ("http://localhost:8080", "http://localhost:8080/"),
        ] {
            assert_eq!(check(text, BrowserKind::External).as_deref(), Ok(opened), "{text}");
        }
    }

    #[test]
    fn non_public_address_is_refused_in_any_notation() {
        for text in [
            "http://127.0.0.1/",
            "http://127.0.0.1:8081/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://①②⑦.0.0.1/",
            "http://%31%32%37.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:127.0.0.1]:8080/",
            "http://[::ffff:7f00:1]:8080/",
            "http://127.0.0.1./",
            "http://017700000001/",
            "http://0X7F.1/",
            "http://[fe80::1]/",
            "http://169.254.169.254/latest/meta-data",
            "http://10.1.2.3/",
            "http://192.168.0.1/",
            "http://0.0.0.0/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://a.localhost/",
            "http:127.0.0.1",
        ] {
            let refused = check(text, BrowserKind::External).unwrap_err();
            assert!(refused.contains("not a public internet address"), "{text}: {refused}");
        }
    }

    /// An exception matches after normalisation, and no similar name.
    #[test]
    fn exception_applies_to_no_other_host() {
        let allowed = NetList::read(["good.localhost:8080", "10.0.0.1"]).unwrap();
        let is_allowed = |host: &NetHost, port: u16| allowed.find(host, port).is_some();
        let check = |text: &str| check_page(text, (BrowserKind::External, ExternalMode::On), is_allowed);
        for (text, opened) in [
            ("http://GOOD.Localhost.:8080/", "http://good.localhost.:8080/"),
            ("http://10.1/", "http://10.0.0.1/"),
            ("http://012.0.0.1/", "http://10.0.0.1/"),
        ] {
            assert_eq!(check(text).as_deref().ok(), Some(opened), "{text}");
        }
        for text in [
            "http://good.localhost/",
            "http://evilgood.localhost:8080/",
            "http://a.good.localhost:8080/",
            "http://good.localhost.localhost:8080/",
            "http://10.0.0.1:8080/",
            "http://10.0.0.2/",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn external_mode_limits_external_browsers_only() {
        let allowed = NetList::read(["wiki.example", "wiki.example:22"]).unwrap();
        let check = |text: &str, kind: BrowserKind, external: ExternalMode| {
            check_page(text, (kind, external), |host, port| allowed.find(host, port).is_some())
                .map_err(|error| error.to_string())
        };
        for external in [ExternalMode::On, ExternalMode::Allowlist] {
            for allowed in ["https://wiki.example/", "http://wiki.example:22/", "about:blank"] {
                assert!(check(allowed, BrowserKind::External, external).is_ok(), "{allowed}");
            }
        }
        assert!(check("https://example.com:8443/", BrowserKind::External, ExternalMode::On).is_ok());
        for mail in ["http://example.com:25/", "https://8.8.8.8:22/"] {
            let refused = check(mail, BrowserKind::External, ExternalMode::On).unwrap_err();
            assert!(refused.contains("is not a web port"), "{refused}");
            assert!(
                check(mail, BrowserKind::Sandbox, ExternalMode::On).is_ok(),
                "the session's network policy limits its ports"
            );
        }
        let refused = check("https://example.com/", BrowserKind::External, ExternalMode::Allowlist).unwrap_err();
        assert!(refused.contains("not among the hosts"), "{refused}");
        let refused = check("https://example.com/", BrowserKind::External, ExternalMode::Off).unwrap_err();
        assert!(refused.contains("browser.external"), "{refused}");
        assert!(check("https://example.com/", BrowserKind::Sandbox, ExternalMode::Off).is_ok());
    }

    #[test]
    fn other_scheme_is_refused() {
        for text in [
            "javascript:alert(1)",
            "data:text/html,x",
            "chrome://settings",
            "view-source:https://example.com",
            "blob:https://example.com/x",
            "ftp://example.com/",
            "about:config",
            "devtools://x",
            "example.com",
            "",
            "https://",
            "https://me:secret@example.com/",
            "file:///workspace/x.html",
        ] {
            assert!(check(text, BrowserKind::External).is_err(), "{text}");
        }
    }

    #[test]
    fn file_outside_workspace_is_refused() {
        for good in ["file:///workspace/x.html", "file:///workspace/a/../b.html", "file://localhost/workspace/x"] {
            assert!(check(good, BrowserKind::Sandbox).is_ok(), "{good}");
        }
        for bad in [
            "file:///etc/passwd",
            "file:///workspace/../etc/passwd",
            "file:///workspace/%2e%2e/etc/passwd",
            "file:///workspace/%2e%2e%2fetc/passwd",
            "file:///workspaces/x",
            "file://host/workspace/x",
        ] {
            assert!(check(bad, BrowserKind::Sandbox).is_err(), "{bad}");
        }
    }
}
