//! A docker image reference in docker's grammar: `[host[:port]/]path[:tag][@digest]`.
//!
//! The reference becomes an argument of the docker client. It starts with a letter or a digit and
//! contains no space, so it cannot be read as an option or as two arguments. The existence of the
//! image is not checked.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, quote};

const MAX_NAME_LEN: usize = 255;
const MAX_TAG: usize = 128;
const MIN_DIGEST_LEN: usize = 32;
const MAX_DIGEST_LEN: usize = 128;

/// A well-formed image reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DockerImage(String);

impl DockerImage {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DockerImage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if is_reference(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::DockerImageMalformed { given: quote(text) })
        }
    }
}

impl fmt::Display for DockerImage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn is_reference(text: &str) -> bool {
    let (text, digest) = match text.split_once('@') {
        Some((before, digest)) => (before, Some(digest)),
        None => (text, None),
    };
    // A colon before the last slash separates a port.
    let last = text.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match text[last..].split_once(':') {
        Some((component, tag)) => (&text[..last + component.len()], Some(tag)),
        None => (text, None),
    };
    is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

/// The first component is a host if it contains `.` or `:`, is `localhost` or has an upper-case
/// letter, as in docker.
fn is_name(name: &str) -> bool {
    let is_host_like = |part: &str| {
        part.contains(['.', ':']) || part == "localhost" || part.bytes().any(|byte| byte.is_ascii_uppercase())
    };
    let path = match name.split_once('/') {
        Some((first, rest)) if is_host_like(first) => {
            if !is_host(first) {
                return false;
            }
            rest
        }
        _ => name,
    };
    name.len() <= MAX_NAME_LEN && path.split('/').all(is_path_component)
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    };
    name.split('.').all(is_label)
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Lower-case letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_path_component(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(is_inner))
        && bytes.split(is_inner).all(|separator| {
            matches!(separator, [] | b"." | b"_" | b"__") || separator.iter().all(|byte| *byte == b'-')
        })
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= MAX_TAG
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['+', '.', '-', '_']).all(is_part)
        && (MIN_DIGEST_LEN..=MAX_DIGEST_LEN).contains(&hex.len())
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_reference_is_accepted() {
        let digest = format!("python@sha256:{}", "0f".repeat(32));
        for good in [
            "python",
            "python:3.12-slim",
            "ringwall/sandbox:latest",
            "a/b/c/d:_1",
            "localhost/x",
            "localhost:5000/x:y",
            "HOST/x",
            "example.test:5000/team/image__name:1.0",
            "a--b/c_d.e",
            digest.as_str(),
        ] {
            assert_eq!(good.parse::<DockerImage>().map(|image| image.to_string()), Ok(good.to_owned()));
        }
    }

    #[test]
    fn other_text_is_rejected() {
        let long_name = "a".repeat(256);
        let long_tag = format!("a:{}", "t".repeat(129));
        let short_digest = format!("a@sha256:{}", "0".repeat(31));
        for bad in [
            "",
            "-a",
            "--privileged",
            "a --privileged",
            "a\n",
            "a\0",
            "Python",
            "a/",
            "/a",
            "a//b",
            "a:",
            "a:-x",
            "a:b:c",
            "a:b c",
            "a___b",
            "a..b",
            "a.",
            "-/a",
            "-host.test/a",
            "host.test:/a",
            "host.test:x/a",
            "[::1]/a",
            "a@",
            "a@sha256",
            "a@sha256:",
            "a@:00",
            "ä",
            "../a",
            long_name.as_str(),
            long_tag.as_str(),
            short_digest.as_str(),
        ] {
            let expected = Err(Error::DockerImageMalformed { given: quote(bad) });
            assert_eq!(bad.parse::<DockerImage>(), expected, "{bad:?}");
        }
    }
}
