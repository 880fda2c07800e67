//! Files that a box left and that were not kept, with the reason. A skipped file is no error; only
//! an exceeded limit can change the exec's result ([`Extent`](crate::Extent)).

use std::fmt;

use serde::Serialize;

use crate::relative_path::PathProblem;

/// Further files are only counted.
const MAX_NAMED: usize = 100;
const MAX_SHOWN: usize = 1024;

/// A file that was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// For display: escaped if it is not UTF-8, and truncated after 1,024 characters.
    pub path: String,
    pub reason: SkipReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    SymbolicLink,
    Fifo,
    Socket,
    Device,
    /// One of the four names that the server uses.
    ReservedName,
    /// No request could name this path.
    Name(PathProblem),
    /// It belongs to another user, so the box did not write it.
    ForeignOwner,
    /// The file exceeds the total size that the policy allows.
    OverBytes,
    /// More names than the limit.
    OverNames,
    /// Its type changed during the collection.
    Changed,
    Unreadable,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::SymbolicLink => "is a symbolic link",
            Self::Fifo => "is a FIFO",
            Self::Socket => "is a socket",
            Self::Device => "is a device",
            Self::ReservedName => "has a name that the server uses",
            Self::Name(problem) => return problem.fmt(formatter),
            Self::ForeignOwner => "belongs to another user",
            Self::OverBytes => "exceeds the size limit of artifacts",
            Self::OverNames => "exceeds the limit of names",
            Self::Changed => "changed during the collection",
            Self::Unreadable => "could not be read",
        };
        formatter.write_str(text)
    }
}

/// The list while it is built.
#[derive(Debug, Default)]
pub(crate) struct SkippedList {
    pub(crate) named: Vec<Skipped>,
    pub(crate) total: u64,
}

impl SkippedList {
    /// Adds `count` files with the same reason as one entry.
    pub(crate) fn add(&mut self, path: &[u8], reason: SkipReason, count: u64) {
        self.total += count;
        if self.named.len() < MAX_NAMED {
            self.named.push(Skipped { path: show(path), reason });
        }
    }
}

fn show(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) => text.chars().take(MAX_SHOWN).collect(),
        Err(_) => path.escape_ascii().map(char::from).take(MAX_SHOWN).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_files_beyond_limit_are_only_counted() {
        let mut list = SkippedList::default();
        for _ in 0..1000 {
            list.add(b"bad\xff\n", SkipReason::Name(PathProblem::NotUnicode), 1);
        }
        list.add(b"d", SkipReason::OverNames, 5);
        assert_eq!((list.named.len(), list.total), (MAX_NAMED, 1005));
        assert_eq!(list.named[0].path, "bad\\xff\\n");
        let json = serde_json::to_string(&list.named[0]).unwrap();
        assert_eq!(json, r#"{"path":"bad\\xff\\n","reason":{"name":"not_unicode"}}"#);
    }
}
