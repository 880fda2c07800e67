//! The names of things in the record, each a type of its own.
//!
//! What a user or an agent may be called is decided elsewhere; here a name only has to be one that both databases can
//! store and index. Exec and token ids have one form, so that whatever else comes in from outside is no id at all.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The longest name of a user or an agent, in bytes. An index entry in PostgreSQL has room for about 2700.
const MAX_NAME_LEN: usize = 255;

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $is_one:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, utoipa::ToSchema)]
        #[serde(transparent)]
        pub struct $type(String);

        impl $type {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                if $is_one(text) { Ok(Self(text.to_owned())) } else { Err(Error::NameMalformed { what: $what }) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

name!(
    /// Who owns the work.
    UserId,
    "a user id: 1 to 255 bytes without NUL",
    is_name
);
name!(
    /// The program that acts for a user; unique among that user's agents only.
    AgentId,
    "an agent id: 1 to 255 bytes without NUL",
    is_name
);
name!(
    /// `e_` and 16 to 64 hexadecimal digits.
    ExecId,
    "an exec id: e_ and 16 to 64 hexadecimal digits",
    is_exec_id
);
name!(
    /// `t_` and 16 to 64 hexadecimal digits. It names a token and gives no access.
    TokenId,
    "a token id: t_ and 16 to 64 hexadecimal digits",
    is_token_id
);

name!(
    /// `a_` and 16 to 64 hexadecimal digits. It names what a person is asked, and answers nothing.
    ApprovalId,
    "an approval id: a_ and 16 to 64 hexadecimal digits",
    is_approval_id
);

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_LEN).contains(&text.len()) && !text.contains('\0')
}

fn is_exec_id(text: &str) -> bool {
    text.strip_prefix("e_").is_some_and(is_hexadecimal)
}

fn is_token_id(text: &str) -> bool {
    text.strip_prefix("t_").is_some_and(is_hexadecimal)
}

fn is_approval_id(text: &str) -> bool {
    text.strip_prefix("a_").is_some_and(is_hexadecimal)
}

/// Lower case only: an id that could be written in two ways could be recorded twice.
fn is_hexadecimal(text: &str) -> bool {
    (16..=64).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_form() {
        let longest = format!("e_{}", "f".repeat(64));
        for good in ["e_0123456789abcdef", longest.as_str()] {
            assert_eq!(good.parse::<ExecId>().unwrap().as_str(), good);
        }
        let too_long = format!("e_{}", "f".repeat(65));
        for bad in ["", "e_", "e_0123456789abcde", "e_0123456789ABCDEF", "t_0123456789abcdef", "e_0123456789abcdef\0"] {
            assert!(bad.parse::<ExecId>().is_err(), "{bad:?}");
        }
        assert!(too_long.parse::<ExecId>().is_err());
        assert!("t_0123456789abcdef".parse::<TokenId>().is_ok());
        assert!("e_0123456789abcdef".parse::<TokenId>().is_err());
    }

    #[test]
    fn names_can_be_stored_by_both_databases() {
        for good in ["a", "Ann Example", "日本", &"x".repeat(255)] {
            assert!(good.parse::<UserId>().is_ok(), "{good:?}");
        }
        for bad in ["", "a\0b", &"x".repeat(256)] {
            assert!(bad.parse::<AgentId>().is_err(), "{bad:?}");
        }
    }
}
