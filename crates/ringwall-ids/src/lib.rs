//! The ids of Ringwall, each a type of its own, and the random digits they are made of.
//!
//! There are two forms. Clients choose the ids of users, agents, projects and sessions:
//! `[A-Za-z0-9][A-Za-z0-9._-]{0,127}` without `..`, so each is safe as one component of a path. The
//! server generates the ids of execs, tokens and approvals: a prefix and 16 to 64 hexadecimal
//! digits.

use std::fmt::{self, Write as _};
use std::io;
use std::str::FromStr;

use rustix::rand::GetRandomFlags;

const MAX_NAME_LEN: usize = 128;

/// Fixed segments of routes at the position where other routes have an agent id.
const NOT_AGENTS: [&str; 3] = ["skills", "files", "sandbox"];

const RANDOM_BYTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error(
        "{given} is not {kind}: use 1 to 128 of the characters A-Z, a-z, 0-9, '.', '_' and '-', \
         start with a letter or a digit, and do not use '..'"
    )]
    Name { kind: &'static str, given: String },
    #[error("{given} cannot be an agent id, because it is the name of a route")]
    Reserved { given: String },
    #[error("{given} is not {kind}: it is '{prefix}' and 16 to 64 of the digits 0-9 and a-f")]
    Digits { kind: &'static str, prefix: &'static str, given: String },
}

/// The kernel returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("could not read random bytes from the kernel")]
pub struct RandomError(#[source] io::Error);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, utoipa::ToSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let check: fn(&str) -> Result<(), IdError> = $check;
                check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        id!($(#[$doc])* $name, |text| check_digits(text, $kind, $prefix));

        impl $name {
            /// Generates an id of 128 random bits, which cannot be guessed.
            pub fn random() -> Result<Self, RandomError> {
                Ok(Self(format!("{}{}", $prefix, random_digits::<RANDOM_BYTES>()?)))
            }
        }
    };
}

id!(
    /// The owner of a workspace
    UserId,
    |text| check_name(text, "a user id")
);
id!(
    /// The program that acts for a user; unique among the agents of this user
    AgentId,
    |text| match NOT_AGENTS.contains(&text) {
        true => Err(IdError::Reserved { given: quote(text) }),
        false => check_name(text, "an agent id"),
    }
);
id!(
    /// A unit of exec history in a workspace
    ProjectId,
    |text| check_name(text, "a project id")
);
id!(
    /// A conversation whose commands share their files
    SessionId,
    |text| check_name(text, "a session id")
);
id!(
    /// `e_` and 16 to 64 hexadecimal digits
    ExecId,
    "an exec id",
    "e_"
);
id!(
    /// `t_` and 16 to 64 hexadecimal digits. The id of a token, which gives no access
    TokenId,
    "a token id",
    "t_"
);
id!(
    /// `a_` and 16 to 64 hexadecimal digits. The id of an approval, which does not answer it
    ApprovalId,
    "an approval id",
    "a_"
);

fn check_name(text: &str, kind: &'static str) -> Result<(), IdError> {
    let mut bytes = text.bytes();
    let is_name = text.len() <= MAX_NAME_LEN
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !text.contains("..");
    if is_name { Ok(()) } else { Err(IdError::Name { kind, given: quote(text) }) }
}

/// Lower case only: an id that could be written in two ways could be recorded twice.
fn check_digits(text: &str, kind: &'static str, prefix: &'static str) -> Result<(), IdError> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let well_formed = text
        .strip_prefix(prefix)
        .is_some_and(|digits| (16..=64).contains(&digits.len()) && digits.bytes().all(is_digit));
    if well_formed { Ok(()) } else { Err(IdError::Digits { kind, prefix, given: quote(text) }) }
}

/// Returns `BYTES` random bytes from the kernel as lower-case hexadecimal digits.
pub fn random_digits<const BYTES: usize>() -> Result<String, RandomError> {
    let mut bytes = [0; BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()))
        .map_err(|errno| RandomError(errno.into()))?;
    // `getrandom` returns up to 256 bytes completely. Fewer bytes would make a token guessable.
    if count < BYTES {
        return Err(RandomError(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(hexadecimal(&bytes))
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Quotes untrusted text for a message: escapes control characters, which could control a terminal,
/// and truncates after 120 characters.
pub fn quote(text: &str) -> String {
    const MAX_CHARS: usize = 120;
    let mut quoted = String::from('"');
    quoted.extend(text.chars().take(MAX_CHARS).flat_map(char::escape_debug));
    if text.chars().nth(MAX_CHARS).is_some() {
        quoted.push('…');
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_other_characters_is_rejected() {
        let longest = "a".repeat(MAX_NAME_LEN);
        for good in ["a", "0", "A", "a.b", "a.", "a_-", "default", "a.b.c", longest.as_str()] {
            assert_eq!(good.parse::<UserId>().unwrap().as_str(), good);
            assert_eq!(good.parse::<AgentId>().unwrap().to_string(), good);
            assert_eq!(good.parse::<ProjectId>().unwrap().to_string(), good);
            assert_eq!(good.parse::<SessionId>().unwrap().to_string(), good);
        }
        let too_long = "a".repeat(MAX_NAME_LEN + 1);
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
            for error in [
                bad.parse::<UserId>().map(drop),
                bad.parse::<AgentId>().map(drop),
                bad.parse::<ProjectId>().map(drop),
                bad.parse::<SessionId>().map(drop),
            ] {
                assert!(matches!(error, Err(IdError::Name { .. })), "{bad:?}");
            }
        }
    }

    #[test]
    fn route_name_is_rejected_as_agent_id() {
        for word in NOT_AGENTS {
            assert!(matches!(word.parse::<AgentId>(), Err(IdError::Reserved { .. })), "{word}");
            assert!(word.parse::<UserId>().is_ok() && word.parse::<ProjectId>().is_ok(), "{word}");
        }
        assert!("Skills".parse::<AgentId>().is_ok());
    }

    #[test]
    fn id_with_wrong_prefix_length_or_digit_is_rejected() {
        let longest = format!("e_{}", "f".repeat(64));
        for good in ["e_0123456789abcdef", longest.as_str()] {
            assert_eq!(good.parse::<ExecId>().unwrap().as_str(), good);
        }
        let too_long = format!("e_{}", "f".repeat(65));
        for bad in [
            "",
            "e_",
            "e_0123456789abcde",
            "e_0123456789abcdeF",
            "e_0123456789abcdeg",
            "0123456789abcdef",
            "e_0123456789abcdef\n",
            "e_0123456789abcdef\0",
            "e_0123456789abcdef/..",
            "e_../../../../../etc",
            "E_0123456789abcdef",
            "t_0123456789abcdef",
            too_long.as_str(),
        ] {
            assert!(matches!(bad.parse::<ExecId>(), Err(IdError::Digits { .. })), "{bad:?}");
        }
        assert!("t_0123456789abcdef".parse::<TokenId>().is_ok());
        assert!("a_0123456789abcdef".parse::<ApprovalId>().is_ok());
    }

    #[test]
    fn random_ids_differ_and_parse() {
        let (one, other) = (ExecId::random().unwrap(), ExecId::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), 2 + 2 * RANDOM_BYTES);
        assert_eq!(one.as_str().parse::<ExecId>().unwrap(), one);
    }
}
