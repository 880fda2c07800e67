//! The lists of allowed command names. The operator's settings replace each list as a whole.
//!
//! An empty list allows nothing. If a line may run at all, builtins that change only the shell
//! itself are allowed after its first command, because their effect ends with the shell.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use ringwall_risk::shell_syntax::{is_builtin, plain_name};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::{Error, quote};

const ALLOWED: [&str; 20] = [
    "python", "python3", "bash", "sh", "cmd", "ls", "cat", "echo", "grep", "sed", "mkdir", "touch", "cp", "mv", "rm",
    "tee", "find", "chmod", "xargs", "curl",
];
const FILTERS: [&str; 17] = [
    "wc", "head", "tail", "sort", "uniq", "cut", "tr", "awk", "diff", "printf", "date", "pwd", "basename", "dirname",
    "stat", "seq", "sleep",
];
const ARGV: [&str; 22] = [
    "python3", "python", "pip", "pip3", "bash", "sh", "ls", "cat", "grep", "sed", "awk", "echo", "cp", "mv", "rm",
    "mkdir", "find", "curl", "touch", "tee", "chmod", "xargs",
];
const MAX_LEN: usize = 255;

/// A name in a list: letters, digits and `. _ + - /`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct CommandName(String);

impl FromStr for CommandName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-/".contains(&byte);
        let well_formed = (1..=MAX_LEN).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_plain);
        match well_formed {
            true => Ok(Self(text.to_owned())),
            false => Err(Error::CommandNameMalformed { given: quote(text) }),
        }
    }
}

impl<'de> Deserialize<'de> for CommandName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Borrow<str> for CommandName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The lists of a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandLists {
    /// Commands allowed everywhere in a line. If empty, no line may run.
    pub allowed: BTreeSet<CommandName>,
    /// Commands allowed after the first command of a line, by default filters such as `wc`.
    pub allowed_filters: BTreeSet<CommandName>,
    /// Commands that may run without a shell.
    pub allowed_argv: BTreeSet<CommandName>,
}

impl Default for CommandLists {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(|name| CommandName((*name).to_owned())).collect();
        Self { allowed: list(&ALLOWED), allowed_filters: list(&FILTERS), allowed_argv: list(&ARGV) }
    }
}

impl CommandLists {
    /// True if no line may run at all.
    pub(super) fn allow_none(&self) -> bool {
        self.allowed.is_empty()
    }

    /// True if `name` may be the first command of a line.
    pub(super) fn may_begin(&self, name: &str) -> bool {
        self.allowed.contains(plain_name(name))
    }

    /// True if `name` may be a later command of a line.
    pub(super) fn may_stand(&self, name: &str) -> bool {
        let is_further = || self.allowed_filters.contains(plain_name(name)) || is_builtin(name);
        self.may_begin(name) || !self.allowed.is_empty() && is_further()
    }

    /// True if `name` may run without a shell.
    pub(super) fn may_run(&self, name: &str) -> bool {
        self.allowed_argv.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_list_allows_nothing() {
        let none: CommandLists = serde_json::from_str(r#"{"allowed":[],"allowed_argv":[]}"#).expect("two lists");
        for name in ["ls", "wc", "cd"] {
            assert!(!none.may_stand(name) && !none.may_run(name), "{name}");
        }
        let few: CommandLists = serde_json::from_str(r#"{"allowed":["git"]}"#).expect("a list");
        assert!(few.may_stand("git") && !few.may_stand("ls"));
        assert!(few.may_stand("wc") && few.may_run("ls"), "an omitted list keeps its default");
        assert!(serde_json::from_str::<CommandLists>(r#"{"allow":[]}"#).is_err());
        for bad in ["", "a b", "$X", "a;b", "-x", "ä", "\n"] {
            assert!(bad.parse::<CommandName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn program_is_known_in_system_directories_only() {
        let lists = CommandLists::default();
        for first in ["ls", "/bin/ls", "/usr/bin/python3", "curl"] {
            assert!(lists.may_begin(first), "{first}");
        }
        for further in ["wc", "cd", "[", "export", "true", "/usr/bin/wc", "nc", ""] {
            assert!(!lists.may_begin(further), "{further}");
        }
        for good in ["ls", "/bin/ls", "/usr/bin/python3", "/usr/local/bin/python3", "wc", "cd", "[", "export", "true"] {
            assert!(lists.may_stand(good), "{good}");
        }
        for bad in ["./ls", "files/ls", "/tmp/ls", "/bin/../tmp/ls", "/workspace/files/python3", "/bin/cd", "nc", ""] {
            assert!(!lists.may_stand(bad), "{bad}");
        }
        assert!(lists.may_run("pip") && lists.may_run("xargs") && !lists.may_run("wc") && !lists.may_run("/bin/ls"));
    }
}
