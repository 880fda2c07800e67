//! What a box left and was not kept, each with its reason; never a reason to fail the exec's ending.

use std::fmt;

use serde::Serialize;

use crate::relative_path::PathProblem;

/// How many are named; the rest is counted.
const MAX_NAMED: usize = 100;
const MAX_SHOWN: usize = 1024;

/// Something among the artifacts that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// The path, escaped where it is not text, and cut where it is very long. For reading, not for opening.
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
    /// One of the four names that are the server's own.
    ReservedName,
    /// A name that no request could ask for.
    Name(PathProblem),
    /// It does not belong to the workspace, so the box did not write it.
    ForeignOwner,
    /// It does not fit into what the policy allows for all artifacts together.
    OverBytes,
    /// There are more names than are looked at.
    OverNames,
    /// It became something else while it was collected.
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
            Self::ReservedName => "has a name that is the server's own",
            Self::Name(problem) => return problem.fmt(formatter),
            Self::ForeignOwner => "does not belong to the workspace",
            Self::OverBytes => "is over the limit of bytes",
            Self::OverNames => "has more names than are collected",
            Self::Changed => "changed while it was collected",
            Self::Unreadable => "could not be read",
        };
        formatter.write_str(text)
    }
}

/// The list in the making.
#[derive(Debug, Default)]
pub(crate) struct SkippedList {
    pub(crate) named: Vec<Skipped>,
    pub(crate) total: u64,
}

impl SkippedList {
    /// So many names for the same reason, shown as one.
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
    fn many_are_counted_and_few_are_named() {
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
