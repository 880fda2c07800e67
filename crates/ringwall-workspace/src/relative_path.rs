//! A path beneath some directory, as a caller may name one: relative, straight down, ending in a name.
//!
//! Pure spelling; nothing is looked up, and what opens it still lets the kernel hold it beneath. `a//b` and `./a` come
//! back in their plain form. A backslash is refused although Linux allows it: on a client's Windows the same name
//! would climb. Every path that a listing gives parses here again to itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, quote};

/// The kernel's 4096 counts the byte after the end.
const PATH_MAX: usize = 4095;
const MAX_COMPONENT: usize = 255;
/// No honest tree is deeper, and a request of many deep paths would use up the disk's inodes.
const MAX_COMPONENTS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelativePath(String);

/// What is wrong with a path, as the rest of a sentence that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum PathProblem {
    #[error("is empty")]
    Empty,
    #[error("is absolute; give it relative to its directory")]
    Absolute,
    #[error("goes up with '..'")]
    GoesUp,
    #[error("does not end in a file's name")]
    NoName,
    #[error("contains a NUL byte")]
    NulByte,
    #[error("contains a backslash; separate directories with '/'")]
    Backslash,
    #[error("has a name of more than 255 bytes")]
    LongName,
    #[error("has more than 4095 bytes")]
    LongPath,
    #[error("is more than 64 directories deep")]
    TooDeep,
    #[error("is not UTF-8")]
    NotUnicode,
}

impl RelativePath {
    pub(crate) const MAX_LEN: usize = PATH_MAX;
    pub(crate) const DEEPEST: usize = MAX_COMPONENTS;

    /// Reads a path for somebody who tells its problems in words of their own.
    pub(crate) fn read(text: &str) -> Result<Self, PathProblem> {
        plain(text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory part, if there is one, and the last name.
    pub(crate) fn split(&self) -> (Option<&str>, &str) {
        self.0.rsplit_once('/').map_or((None, &self.0), |(parent, name)| (Some(parent), name))
    }

    /// A path that a listing found, which must be plain already.
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
    // The length first: whatever else is wrong with a megabyte, it is not searched for.
    if text.len() > PATH_MAX {
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
    /// Escaped and cut, for messages; the path itself is [`RelativePath::as_str`].
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
    fn what_leads_elsewhere_is_refused() {
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
    fn names_that_only_look_strange_are_names() {
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
    fn a_refusal_names_the_path_and_cannot_steer_a_terminal() {
        let error = "../\u{1b}[2J".parse::<RelativePath>().unwrap_err();
        assert_eq!(error.to_string(), "the path \"../\\u{1b}[2J\" goes up with '..'");
    }

    proptest! {
        /// Whatever is accepted goes straight down and says the same when it is read again.
        #[test]
        fn accepted_paths_stay_beneath(text in "([a.\\\\/\0é \n]|\\.\\./|aaaaaaaa){0,40}") {
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

        /// Names put together by an honest caller are never refused nor changed.
        #[test]
        fn honest_paths_are_accepted(names in proptest::collection::vec("[a-zA-Z0-9_ -][^/\\\\\0]{0,20}", 1..20)) {
            let text = names.join("/");
            let path = text.parse::<RelativePath>().unwrap();
            prop_assert_eq!(path.as_str(), text);
        }
    }
}
