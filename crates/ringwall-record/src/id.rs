//! Ids, each a type of its own.
//!
//! Ids of users and agents only have to be storable and indexable by both databases; stricter rules
//! are the service's. All other ids have one fixed form.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Maximum length of a user or agent id in bytes. A PostgreSQL index entry can hold about 2,700.
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
    /// The owner of a workspace
    UserId,
    "a user id: 1 to 255 bytes without NUL",
    is_name
);
name!(
    /// The program that acts for a user; unique among the agents of this user
    AgentId,
    "an agent id: 1 to 255 bytes without NUL",
    is_name
);
name!(
    /// `e_` and 16 to 64 hexadecimal digits
    ExecId,
    "an exec id: e_ and 16 to 64 hexadecimal digits",
    is_exec_id
);
name!(
    /// `t_` and 16 to 64 hexadecimal digits. The id of a token, which gives no access
    TokenId,
    "a token id: t_ and 16 to 64 hexadecimal digits",
    is_token_id
);

name!(
    /// `a_` and 16 to 64 hexadecimal digits. The id of an approval, which does not answer it
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
    fn id_with_wrong_prefix_length_or_case_is_rejected() {
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
    fn user_id_with_nul_or_over_255_bytes_is_rejected() {
        for good in ["a", "Ann Example", "日本", &"x".repeat(255)] {
            assert!(good.parse::<UserId>().is_ok(), "{good:?}");
        }
        for bad in ["", "a\0b", &"x".repeat(256)] {
            assert!(bad.parse::<AgentId>().is_err(), "{bad:?}");
        }
    }
}
