//! A normalised absolute path of the host, and the test whether one path lies below another.
//!
//! Every comparison is case-sensitive for Linux paths and case-insensitive for Windows paths. If
//! only some were, two entries of a list could cover each other and still be different.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use ringwall_risk::Locale;
use serde::{Serialize, Serializer};

use super::sensitive;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathStyle {
    Linux,
    Windows,
}

impl PathStyle {
    pub(super) fn separator(self) -> char {
        match self {
            PathStyle::Linux => '/',
            PathStyle::Windows => '\\',
        }
    }
}

/// Made only by [`super::normalise`]: absolute, without `.`, `..`, and double or trailing
/// separators.
#[derive(Debug, Clone)]
pub struct HostPath {
    text: String,
    style: PathStyle,
}

impl HostPath {
    pub(super) fn new(text: String, style: PathStyle) -> Self {
        Self { text, style }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn style(&self) -> PathStyle {
        self.style
    }

    /// True if `other` is this path or lies below it.
    pub fn covers(&self, other: &HostPath) -> bool {
        if self.style != other.style {
            return false;
        }
        let (key, other) = (self.key(), other.key());
        let separator = self.style.separator();
        let below = other.strip_prefix(key.as_ref());
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(separator) || key.ends_with(separator))
    }

    /// A warning for the list of allowed paths, if this path is risky to allow.
    pub fn warning(&self) -> Option<&'static str> {
        self.warning_in(Locale::English)
    }

    pub fn warning_in(&self, locale: Locale) -> Option<&'static str> {
        sensitive::warning(self).map(|sentence| sentence.text(locale))
    }

    /// The text that comparisons use.
    pub(super) fn key(&self) -> Cow<'_, str> {
        match self.style {
            PathStyle::Linux => Cow::Borrowed(&self.text),
            PathStyle::Windows => Cow::Owned(self.text.to_lowercase()),
        }
    }

    /// The components of the path, without the root; a drive is the first component.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.text.split(self.style.separator()).filter(|name| !name.is_empty())
    }
}

impl PartialEq for HostPath {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for HostPath {}

impl PartialOrd for HostPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HostPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.style.cmp(&other.style).then_with(|| self.key().cmp(&other.key()))
    }
}

impl Hash for HostPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.style.hash(state);
        self.key().hash(state);
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::normalise;
    use super::*;

    fn path(text: &str) -> HostPath {
        normalise(text, "/workspace", None).expect("a path")
    }

    #[test]
    fn path_covers_itself_and_descendants() {
        let table = [
            ("/home/u", "/home/u"),
            ("/home/u", "/home/u/a"),
            ("/home/u/", "/home/u/a/b"),
            ("/", "/"),
            ("/", "/home"),
            (r"C:\Users\Documents", r"C:\Users\Documents\Work\2024"),
            (r"C:\Users\Documents", r"c:/users/DOCUMENTS/work"),
            (r"C:\", r"C:\Users"),
            (r"\\Server\Share", r"\\server\share\x"),
        ];
        for (entry, below) in table {
            assert!(path(entry).covers(&path(below)), "{entry} {below}");
        }
        let table = [
            ("/home/u", "/home/userbackup"),
            ("/home/u", "/home"),
            ("/home/u", "/home/U"),
            ("/home/u", "/"),
            ("/home/u", "/home/u/../v"),
            ("/", r"C:\"),
            (r"C:\", "/"),
            (r"C:\Users\Documents", r"C:\Users\Downloads"),
            (r"C:\Users\Documents", r"C:\Users"),
            (r"C:\Users\Doc", r"C:\Users\Documents"),
            (r"C:\", r"D:\x"),
            (r"\\server\share", r"\\server\share2"),
        ];
        for (entry, other) in table {
            assert!(!path(entry).covers(&path(other)), "{entry} {other}");
        }
    }

    #[test]
    fn case_matters_on_linux_only() {
        assert_eq!(path(r"C:\Users"), path(r"c:\USERS"));
        assert_ne!(path("/Home"), path("/home"));
        assert_eq!(path(r"c:\Users").to_string(), r"C:\Users", "Display keeps the case");
        assert_eq!(serde_json::to_string(&path(r"C:\a")).expect("text"), r#""C:\\a""#);
    }
}
