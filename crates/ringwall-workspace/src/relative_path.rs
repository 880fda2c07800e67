//! A relative path without `..` that ends in a name.
//!
//! Parsing checks the spelling only; the kernel enforces that a lookup stays beneath its directory.
//! `a//b` and `./a` are normalized. Backslashes are rejected although Linux allows them: a Windows
//! client would take `a\..\b` for a path that leads up. A path from a listing parses to itself.

use std::fmt;
use std::str::FromStr;

use ringwall_ids::quote;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The kernel's limit of 4096 includes the terminating NUL.
const MAX_PATH_BYTES: usize = 4095;
const MAX_COMPONENT: usize = 255;
/// Bounds the directories that one request can create; ordinary trees are not as deep.
const MAX_COMPONENTS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

/// Completes a sentence that starts with the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PathProblem {
    #[error("is empty")]
    Empty,
    #[error("is absolute; give it relative to its directory")]
    Absolute,
    #[error("contains the component '..'")]
    GoesUp,
    #[error("does not end in a file name")]
    NoName,
    #[error("contains a NUL byte")]
    NulByte,
    #[error("contains a backslash; separate directories with '/'")]
    Backslash,
    #[error("has a component of more than 255 bytes")]
    LongName,
    #[error("has more than 4095 bytes")]
    LongPath,
    #[error("is more than 64 directories deep")]
    TooDeep,
    #[error("is not UTF-8")]
    NotUnicode,
}

impl RelativePath {
    pub(crate) const MAX_LEN: usize = MAX_PATH_BYTES;
    pub(crate) const MAX_DEPTH: usize = MAX_COMPONENTS;

    /// Parses without quoting the path in the error, for callers with error texts of their own.
    pub(crate) fn read(text: &str) -> Result<Self, PathProblem> {
        plain(text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Splits into the parent directory, if any, and the last name.
    pub(crate) fn split(&self) -> (Option<&str>, &str) {
        self.0.rsplit_once('/').map_or((None, &self.0), |(parent, name)| (Some(parent), name))
    }

    /// Parses the bytes of a path from a directory or archive listing.
    pub(crate) fn from_listing(bytes: &[u8]) -> Result<Self, PathProblem> {
        let text = std::str::from_utf8(bytes).map_err(|_| PathProblem::NotUnicode)?;
        Self::read(text)
    }
}

impl FromStr for RelativePath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        plain(text).map(Self).map_err(|problem| Error::PathMalformed { given: quote(text), problem })
    }
}

fn plain(text: &str) -> Result<String, PathProblem> {
    // Checked first, so that no other check searches a very long text.
    if text.len() > MAX_PATH_BYTES {
        return Err(PathProblem::LongPath);
    }
    if text.is_empty() {
        return Err(PathProblem::Empty);
    }
    if text.contains('\0') {
        return Err(PathProblem::NulByte);
    }
    if text.starts_with('/') {
        return Err(PathProblem::Absolute);
    }
    if text.contains('\\') {
        return Err(PathProblem::Backslash);
    }
    let components: Vec<&str> = text.split('/').collect();
    if components.contains(&"..") {
        return Err(PathProblem::GoesUp);
    }
    if matches!(components.last(), None | Some(&("" | "."))) {
        return Err(PathProblem::NoName);
    }
    let names: Vec<&str> = components.into_iter().filter(|component| !matches!(*component, "" | ".")).collect();
    if names.iter().any(|name| name.len() > MAX_COMPONENT) {
        return Err(PathProblem::LongName);
    }
    if names.len() > MAX_COMPONENTS {
        return Err(PathProblem::TooDeep);
    }
    Ok(names.join("/"))
}

impl fmt::Display for RelativePath {
    /// Escaped and truncated, for messages. [`RelativePath::as_str`] returns the path itself.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&quote(&self.0))
    }
}

impl TryFrom<String> for RelativePath {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<RelativePath> for String {
    fn from(path: RelativePath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem(text: &str) -> PathProblem {
        match text.parse::<RelativePath>() {
            Err(Error::PathMalformed { problem, .. }) => problem,
            other => panic!("{text:?} gave {other:?}"),
        }
    }

    #[test]
    fn invalid_path_is_rejected_with_its_problem() {
        let long_name = "a".repeat(256);
        let long_path = "a/".repeat(3000);
        let deep = vec!["a"; 65].join("/");
        for (text, expected) in [
            ("", PathProblem::Empty),
            ("/", PathProblem::Absolute),
            ("//", PathProblem::Absolute),
            ("/etc/passwd", PathProblem::Absolute),
            ("..", PathProblem::GoesUp),
            ("../x", PathProblem::GoesUp),
            ("a/../../x", PathProblem::GoesUp),
            ("a/..", PathProblem::GoesUp),
            (".", PathProblem::NoName),
            ("./.", PathProblem::NoName),
            ("a/", PathProblem::NoName),
            ("a/.", PathProblem::NoName),
            ("a\0b", PathProblem::NulByte),
            ("C:\\x", PathProblem::Backslash),
            ("\\\\host\\share", PathProblem::Backslash),
            ("a\\..\\b", PathProblem::Backslash),
            (long_name.as_str(), PathProblem::LongName),
            (long_path.as_str(), PathProblem::LongPath),
            (deep.as_str(), PathProblem::TooDeep),
        ] {
            assert_eq!(problem(text), expected, "{text:?}");
        }
    }

    #[test]
    fn unusual_names_are_accepted() {
        let longest = "a".repeat(255);
        for (text, expected) in [
            ("a", "a"),
            ("a..b", "a..b"),
            ("...", "..."),
            ("..a/b..", "..a/b.."),
            (".hidden", ".hidden"),
            ("./a", "a"),
            ("a//b/./c", "a/b/c"),
            ("new\nline", "new\nline"),
            ("ä/ß", "ä/ß"),
            ("C:x", "C:x"),
            (longest.as_str(), longest.as_str()),
        ] {
            assert_eq!(text.parse::<RelativePath>().unwrap().as_str(), expected, "{text:?}");
        }
    }

    #[test]
    fn error_message_escapes_control_characters() {
        let error = "../\u{1b}[2J".parse::<RelativePath>().unwrap_err();
        assert_eq!(error.to_string(), "the path \"../\\u{1b}[2J\" contains the component '..'");
    }

    proptest! {
        #[test]
        fn accepted_path_stays_beneath_and_round_trips(text in "([a.\\\\/\0é \n]|\\.\\./|aaaaaaaa){0,40}") {
            if let Ok(path) = text.parse::<RelativePath>() {
                let plain = path.as_str();
                prop_assert!(plain.len() <= text.len());
                for name in plain.split('/') {
                    prop_assert!(!matches!(name, "" | "." | ".."));
                    prop_assert!(name.len() <= MAX_COMPONENT);
                    prop_assert!(!name.contains(['\0', '\\']));
                }
                prop_assert_eq!(plain.parse::<RelativePath>().unwrap(), path.clone());
                prop_assert_eq!(RelativePath::from_listing(plain.as_bytes()), Ok(path));
            }
        }

        #[test]
        fn path_of_ordinary_names_is_unchanged(names in proptest::collection::vec("[a-zA-Z0-9_ -][^/\\\\\0]{0,20}", 1..20)) {
            let text = names.join("/");
            let path = text.parse::<RelativePath>().unwrap();
            prop_assert_eq!(path.as_str(), text);
        }
    }
}
