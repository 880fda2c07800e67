//! The URL of an AIO service: http or https, a host and an optional path. Everything else is
//! refused: a password in it would be printed, and a query would end up behind each route.

use std::fmt;
use std::str::FromStr;

use ureq::http::Uri;

use crate::aio_error::AioError;

/// The part of every URL before `/v1`, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceUrl(String);

impl ServiceUrl {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ServiceUrl {
    type Err = AioError;

    fn from_str(text: &str) -> Result<Self, AioError> {
        let wrong = |why| Err(AioError::AddressMalformed(why));
        let Ok(uri) = text.parse::<Uri>() else { return wrong("is not a URL") };
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(_) | None => return wrong("must start with http:// or https://"),
        }
        let Some(authority) = uri.authority() else { return wrong("contains no host") };
        if authority.host().is_empty() {
            return wrong("contains no host");
        }
        if authority.as_str().contains('@') {
            return wrong("contains a user name or password; set the key as aio.key");
        }
        if uri.query().is_some() || text.contains('#') {
            return wrong("contains more than a host and a path");
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_with_more_than_host_and_path_is_refused() {
        for (text, read) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://aio.example/", "https://aio.example"),
            ("https://[::1]:1/boxes/7/", "https://[::1]:1/boxes/7"),
        ] {
            assert_eq!(text.parse::<ServiceUrl>().unwrap().as_str(), read);
        }
        for wrong in [
            "",
            "aio.example",
            "ftp://aio.example",
            "file:///etc/passwd",
            "http://",
            "http://u:hunter2@aio.example",
            "http://aio.example/?a=b",
            "http://aio.example/#a",
            "http://aio.example/a b",
            "unix:/run/aio.sock",
        ] {
            let error = wrong.parse::<ServiceUrl>().unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
