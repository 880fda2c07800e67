//! The id of an exec: `e_` and 16 to 64 hexadecimal digits. New ids are 128 random bits, so they
//! cannot be guessed.
//!
//! The id is used in file names; nothing but digits may follow the prefix.

use std::fmt::{self, Write};
use std::str::FromStr;

use rustix::rand::GetRandomFlags;

use crate::error::{Error, quote};

const PREFIX: &str = "e_";
const MIN_DIGITS: usize = 16;
const MAX_DIGITS: usize = 64;
const RANDOM_BYTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecId(String);

impl ExecId {
    /// Generates an id.
    pub fn random() -> Result<Self, Error> {
        Ok(Self(format!("{PREFIX}{}", random_digits()?)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ExecId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let well_formed = text
            .strip_prefix(PREFIX)
            .is_some_and(|digits| (MIN_DIGITS..=MAX_DIGITS).contains(&digits.len()) && digits.bytes().all(is_digit));
        if well_formed { Ok(Self(text.to_owned())) } else { Err(Error::ExecIdMalformed { given: quote(text) }) }
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Generates 128 random bits as 32 digits.
pub(crate) fn random_digits() -> Result<String, Error> {
    let mut bytes = [0; RANDOM_BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()))
        .map_err(|errno| Error::Randomness(errno.into()))?;
    // The kernel returns a request of this size completely; a short result would make names
    // guessable.
    if count < RANDOM_BYTES {
        return Err(Error::Randomness(std::io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(hexadecimal(&bytes))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_differ_and_parse() {
        let (one, other) = (ExecId::random().unwrap(), ExecId::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), 2 + 2 * RANDOM_BYTES);
        assert_eq!(one.as_str().parse::<ExecId>().unwrap(), one);
    }

    #[test]
    fn malformed_exec_id_is_rejected() {
        let longest = format!("e_{}", "f".repeat(64));
        for good in ["e_0123456789abcdef", longest.as_str()] {
            assert!(good.parse::<ExecId>().is_ok(), "{good}");
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
            "e_0123456789abcdef/..",
            "e_../../../../../etc",
            "E_0123456789abcdef",
            too_long.as_str(),
        ] {
            assert!(matches!(bad.parse::<ExecId>(), Err(Error::ExecIdMalformed { .. })), "{bad:?}");
        }
    }
}
