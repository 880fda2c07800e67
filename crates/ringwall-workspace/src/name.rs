//! Ids of users, agents, projects and sessions: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}` without `..`.
//!
//! A parsed id is safe as one component of a path. Names that start with a dot are reserved for the
//! server's own directories, such as `.staging`.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, quote};

const MAX_LEN: usize = 128;

/// Fixed segments of routes at the position where other routes have an agent id.
const NOT_AGENTS: [&str; 3] = ["skills", "files", "sandbox"];

macro_rules! name {
    ($(#[$meta:meta])* $name:ident, $kind:literal, $check:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                if !is_plain(text) {
                    return Err(Error::NameMalformed { kind: $kind, given: quote(text) });
                }
                let check: fn(&str) -> Result<(), Error> = $check;
                check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The owner of a workspace.
    UserId,
    "a user id",
    |_| Ok(())
);
name!(
    /// The program that acts for a user.
    AgentId,
    "an agent id",
    refuse_routes
);
name!(
    /// A unit of exec history in a workspace.
    ProjectId,
    "a project id",
    |_| Ok(())
);
name!(
    /// A conversation whose commands share their files.
    SessionId,
    "a session id",
    |_| Ok(())
);

fn is_plain(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= MAX_LEN
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !text.contains("..")
}

fn refuse_routes(text: &str) -> Result<(), Error> {
    if NOT_AGENTS.contains(&text) { Err(Error::NameReserved { given: quote(text) }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_with_other_characters_is_rejected() {
        let longest = "a".repeat(MAX_LEN);
        for good in ["a", "0", "A", "a.b", "a.", "a_-", "default", "a.b.c", longest.as_str()] {
            assert_eq!(good.parse::<UserId>().unwrap().as_str(), good);
            assert_eq!(good.parse::<AgentId>().unwrap().to_string(), good);
            assert_eq!(good.parse::<ProjectId>().unwrap().to_string(), good);
        }
        let too_long = "a".repeat(MAX_LEN + 1);
        for bad in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "_a",
            "a..b",
            "a/b",
            "/a",
            "a/",
            "a\\b",
            "a b",
            "a\0",
            "ä",
            "a\n",
            "a:1",
            "../a",
            "%2e",
            too_long.as_str(),
        ] {
            for error in
                [bad.parse::<UserId>().map(drop), bad.parse::<AgentId>().map(drop), bad.parse::<ProjectId>().map(drop)]
            {
                assert!(matches!(error, Err(Error::NameMalformed { .. })), "{bad:?}");
            }
        }
    }

    #[test]
    fn route_name_is_rejected_as_agent_id() {
        for word in NOT_AGENTS {
            assert!(matches!(word.parse::<AgentId>(), Err(Error::NameReserved { .. })), "{word}");
            assert!(word.parse::<UserId>().is_ok() && word.parse::<ProjectId>().is_ok(), "{word}");
        }
        assert!("Skills".parse::<AgentId>().is_ok());
    }
}
