//! Parses the target of a proxy request: host, port and form.
//!
//! Only the URL in the request line counts. A different `Host` header is replaced.

use hyper::http::uri::Scheme;
use hyper::{Method, Request};
use ringwall_policy::NetHost;

const HTTP: u16 = 80;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: NetHost,
    pub(super) port: u16,
    pub(super) form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `CONNECT host:port`: a tunnel for any bytes.
    Tunnel,
    /// `GET http://host/path`: one request is forwarded.
    Absolute,
}

/// A request whose target cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidTarget {
    /// The host part, for the record; empty if there is none.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) why: String,
}

impl Target {
    pub(super) fn read<T>(request: &Request<T>) -> Result<Self, InvalidTarget> {
        let uri = request.uri();
        let Some(authority) = uri.authority() else {
            return Err(invalid("", 0, "this is a proxy: send CONNECT host:port, or a full URL with http://"));
        };
        let refuse = |why: &str| Err(invalid(authority.as_str(), 0, why));
        let form = match (request.method(), uri.scheme()) {
            (&Method::CONNECT, None) => Form::Tunnel,
            (&Method::CONNECT, Some(_)) => return refuse("CONNECT takes host:port"),
            (_, Some(scheme)) if *scheme == Scheme::HTTP => Form::Absolute,
            _ => return refuse("only http:// is forwarded; use CONNECT for other protocols"),
        };
        let port = match (authority.port().map(|port| port.as_u16()), form) {
            (Some(0), _) => return refuse("there is no port 0"),
            (None, _) if authority.as_str().ends_with(':') => return refuse("the port is missing"),
            (Some(port), _) => port,
            (None, Form::Absolute) => HTTP,
            (None, Form::Tunnel) => return refuse("CONNECT needs a port"),
        };
        let host = authority.host();
        // Other parsers might take the user part for the host.
        if authority.as_str().contains('@') {
            return Err(invalid(host, port, "a URL with a user name is not forwarded"));
        }
        let host = host.parse::<NetHost>().map_err(|error| invalid(host, port, &error.to_string()))?;
        Ok(Self { host, port, form })
    }

    /// Value of the `Host` header.
    pub(super) fn authority(&self) -> String {
        match self.port {
            HTTP => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }
}

fn invalid(host: &str, port: u16, why: &str) -> InvalidTarget {
    const SHOWN: usize = 253;
    InvalidTarget { host: host.chars().take(SHOWN).collect(), port, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, uri: &str) -> Result<(String, u16, Form), String> {
        let request = Request::builder().method(method).uri(uri).body(()).map_err(|error| error.to_string())?;
        let target = Target::read(&request).map_err(|invalid| invalid.why)?;
        Ok((target.host.to_string(), target.port, target.form))
    }

    #[test]
    fn both_forms_are_parsed() {
        let good = |host: &str, port, form| Ok((host.to_owned(), port, form));
        assert_eq!(read("CONNECT", "Good.COM.:443"), good("good.com", 443, Form::Tunnel));
        assert_eq!(read("CONNECT", "[2606:4700::1]:443"), good("[2606:4700::1]", 443, Form::Tunnel));
        assert_eq!(read("GET", "http://good.com/a?b"), good("good.com", 80, Form::Absolute));
        assert_eq!(read("POST", "http://good.com:8080/"), good("good.com", 8080, Form::Absolute));
        assert_eq!(read("GET", "HTTP://1.2.3.4/"), good("1.2.3.4", 80, Form::Absolute));
    }

    #[test]
    fn invalid_target_is_refused() {
        for (method, uri) in [
            ("GET", "/"),
            ("OPTIONS", "*"),
            ("CONNECT", "good.com"),
            ("CONNECT", "good.com:0"),
            ("CONNECT", "good.com:"),
            ("CONNECT", "good.com:65536"),
            ("CONNECT", "http://good.com:443/"),
            ("CONNECT", "user@good.com:443"),
            ("GET", "https://good.com/"),
            ("GET", "ftp://good.com/"),
            ("GET", "good.com:80"),
            ("GET", "http://good.com@evil.com/"),
            ("GET", "http://good.com:/"),
            ("GET", "http://2130706433/"),
            ("GET", "http://0x7f.1/"),
            ("GET", "http://0177.0.0.1/"),
            ("GET", "http://127.1/"),
            ("GET", "http://evil%2ecom/"),
        ] {
            assert!(read(method, uri).is_err(), "{method} {uri}");
        }
    }
}
