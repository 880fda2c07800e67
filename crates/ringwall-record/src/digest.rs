//! SHA-256 digests, and the encoding of a list of fields to hash.
//!
//! Each field is encoded with its type and length, so that different lists have different bytes.
//! Stored digests depend on this encoding, so it must never change; a new encoding needs a new
//! domain.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::db::statement::Value;
use crate::error::Error;

/// A SHA-256 digest, as 64 hexadecimal digits
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(value_type = String)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The predecessor of the chain's first entry.
    pub const ZERO: Self = Self([0; 32]);

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest of a list of fields. Digests with different domains never match.
    pub(crate) fn of_fields<'v>(domain: &str, fields: impl IntoIterator<Item = &'v Value>) -> Self {
        let mut hasher = Sha256::new();
        let mut add = |kind: u8, bytes: &[u8]| {
            hasher.update([kind]);
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        add(b'd', domain.as_bytes());
        for field in fields {
            match field {
                Value::Integer(Some(number)) => add(b'i', &number.to_be_bytes()),
                Value::Text(Some(text)) => add(b't', text.as_bytes()),
                Value::Bytes(Some(bytes)) => add(b'b', bytes),
                Value::Integer(None) | Value::Text(None) | Value::Bytes(None) => add(b'n', &[]),
            }
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl std::str::FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let malformed = Error::NameMalformed { what: "a digest of 64 hexadecimal digits" };
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(malformed);
        }
        for (byte, start) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
            *byte = u8::from_str_radix(&text[start..start + 2], 16).map_err(|_| malformed.clone())?;
        }
        Ok(Self(bytes))
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digest_is_sha256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), expected);
        assert_eq!(expected.parse::<Digest>().unwrap(), Digest::of(b"abc"));
        for bad in ["", "ba78", &"g".repeat(64), &"é".repeat(32), &format!("{expected}0")] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn field_encoding_is_unchanged() {
        let fields = [Value::from(1), Value::from("a"), Value::Bytes(Some(vec![2])), Value::Text(None)];
        let bytes: Vec<u8> = [
            &b"d\0\0\0\0\0\0\0\x01x"[..],
            b"i\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x01",
            b"t\0\0\0\0\0\0\0\x01a",
            b"b\0\0\0\0\0\0\0\x01\x02",
            b"n\0\0\0\0\0\0\0\0",
        ]
        .concat();
        assert_eq!(Digest::of_fields("x", &fields), Digest::of(&bytes));
    }

    fn fields() -> impl Strategy<Value = Vec<Value>> {
        let field = prop_oneof![
            any::<Option<i64>>().prop_map(Value::Integer),
            proptest::option::of("[ab]{0,3}").prop_map(Value::Text),
            proptest::option::of(proptest::collection::vec(97..99_u8, 0..3)).prop_map(Value::Bytes),
        ];
        proptest::collection::vec(field, 0..4)
    }

    /// NULLs of all types are encoded alike.
    fn same(left: &Value, right: &Value) -> bool {
        left == right || (left.is_null() && right.is_null())
    }

    proptest! {
        #[test]
        fn different_fields_have_different_digests(left in fields(), right in fields()) {
            let equal = left.len() == right.len() && left.iter().zip(&right).all(|(left, right)| same(left, right));
            prop_assert_eq!(Digest::of_fields("x", &left) == Digest::of_fields("x", &right), equal);
        }
    }
}
