//! The key of the digests by which a repeated request is known again, made once for a data directory.
//!
//! A request may hold secrets. A plain digest of it on record would let whoever gets hold of a copy of the record try
//! values until one fits; with a key that lies beside the record, and not in it, they cannot. Without its old key a
//! server takes a repeated request for another one and refuses it; it never runs it twice. Other keys are derived from it.

use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::Error;
use crate::private_file;
use crate::token::random_digits;

const FILE: &str = "digest.key";
/// As long as a block of the hash.
const BYTES: usize = 64;

pub(crate) struct DigestKey([u8; BYTES]);

impl DigestKey {
    /// Reads it, or makes it. Blocks.
    pub(crate) fn ensure(data: &Path) -> Result<Self, Error> {
        let path = data.join(FILE);
        let failed =
            |source: std::io::Error| Error::start("read or write digest.key in the data directory")(source.into());
        let text = match private_file::read(&path).map_err(failed)? {
            Some(text) => text,
            None => {
                let text = random_digits::<BYTES>()?;
                private_file::write(&path, &text).map_err(failed)?;
                text
            }
        };
        Self::parse(&text).ok_or_else(|| {
            let wrong = "it does not hold the 128 hexadecimal digits of a key; put it back from a copy, or remove it";
            failed(std::io::Error::new(std::io::ErrorKind::InvalidData, wrong))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut key = [0; BYTES];
        if text.len() != 2 * BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, place) in key.iter_mut().zip((0..text.len()).step_by(2)) {
            *byte = u8::from_str_radix(&text[place..place + 2], 16).ok()?;
        }
        Some(Self(key))
    }

    /// What goes on record in the place of a digest.
    pub(crate) fn seal(&self, digest: [u8; 32]) -> [u8; 32] {
        self.authenticate(&digest)
    }

    /// A key for something else, from which neither this one nor another can be told.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        // Longer than any digest, so that it is none.
        self.authenticate(format!("the key of this data directory for {purpose}").as_bytes())
    }

    fn authenticate(&self, bytes: &[u8]) -> [u8; 32] {
        let mut sealed = Hmac::<Sha256>::new(&self.0.into());
        sealed.update(bytes);
        sealed.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_has_one_key_and_another_directory_another() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sealed = |data: &Path| DigestKey::ensure(data).unwrap().seal([7; 32]);
        let first = sealed(one.path());
        assert_eq!(first, sealed(one.path()));
        assert_ne!(first, sealed(other.path()));
        assert_ne!(first, [7; 32]);
        let derived = |purpose: &str| DigestKey::ensure(one.path()).unwrap().derive(purpose);
        assert_eq!(derived("a"), derived("a"));
        assert!(derived("a") != derived("b") && derived("a") != first);
        assert_ne!(first, DigestKey::ensure(one.path()).unwrap().seal([8; 32]));
        let mode = std::fs::metadata(one.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_key_is_not_replaced_in_silence() {
        let data = tempfile::tempdir().unwrap();
        for damaged in ["x", "0g", &"0".repeat(127), &"é".repeat(64)] {
            std::fs::write(data.path().join(FILE), damaged).unwrap();
            assert!(DigestKey::ensure(data.path()).is_err(), "{damaged}");
        }
    }
}
