//! `digest.key`: the secret of a data directory, created once. Keys for other purposes are derived
//! from it.
//!
//! - It keys the digests that identify repeated requests. A request may contain secrets, and an
//!   unkeyed digest in a copied database could be tested against guesses. With a different key a
//!   repeated request is rejected; it never runs twice.
//! - A derived key signs the head of the audit chain ([`head_key`]).

use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use ringwall_ids::random_digits;
use ringwall_record::HeadKey;
use sha2::Sha256;

use crate::auth::private_file;
use crate::error::Error;

const FILE: &str = "digest.key";
/// The block size of SHA-256.
const BYTES: usize = 64;

pub(crate) struct DigestKey([u8; BYTES]);

impl DigestKey {
    /// Reads the key or creates it. Processes that create it concurrently all get the same key.
    /// Blocks.
    pub(crate) fn ensure(data: &Path) -> Result<Self, Error> {
        let failed = |source: std::io::Error| Error::start("read or write digest.key in the data directory")(source);
        if let Some(key) = Self::read(data).map_err(failed)? {
            return Ok(key);
        }
        let made = random_digits::<BYTES>()?;
        private_file::create(&data.join(FILE), &made).map_err(failed)?;
        // Another process may have created the file first, so the key on disk is used.
        let key = Self::read(data).map_err(failed)?;
        key.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))
    }

    /// `None` if the data directory has no key.
    fn read(data: &Path) -> std::io::Result<Option<Self>> {
        let path = data.join(FILE);
        let text = match private_file::read(&path)? {
            Some(text) => text,
            None if path.symlink_metadata().is_ok() => String::new(),
            None => return Ok(None),
        };
        let wrong = "it does not hold the 128 hexadecimal digits of a key; put it back from a copy";
        let key = Self::parse(&text).ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, wrong))?;
        Ok(Some(key))
    }

    /// The key that signs the head of the audit chain.
    pub(crate) fn head_key(&self) -> HeadKey {
        HeadKey::new(self.derive("the head of the audit chain"))
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

    /// Returns the keyed digest that is stored instead of `digest`.
    pub(crate) fn seal(&self, digest: [u8; 32]) -> [u8; 32] {
        self.authenticate(&digest)
    }

    /// Derives a key for another purpose. A derived key reveals neither this key nor other derived
    /// keys.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        // Longer than the 32 bytes that `seal` authenticates, so the result never equals a sealed
        // digest.
        self.authenticate(format!("the key of this data directory for {purpose}").as_bytes())
    }

    fn authenticate(&self, bytes: &[u8]) -> [u8; 32] {
        let mut sealed = Hmac::<Sha256>::new(&self.0.into());
        sealed.update(bytes);
        sealed.finalize().into_bytes().into()
    }
}

/// The key that signs the head of this data directory's audit chain; `None` if the directory has no
/// `digest.key`. Blocks.
pub fn head_key(data: &Path) -> std::io::Result<Option<HeadKey>> {
    DigestKey::read(data).map(|key| key.as_ref().map(DigestKey::head_key))
}

/// As [`head_key`], for programs that write to the database: creates the key if necessary. Blocks.
pub fn ensure_head_key(data: &Path) -> Result<HeadKey, Error> {
    DigestKey::ensure(data).map(|key| key.head_key())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn digest_keys_of_two_directories_differ() {
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
    fn damaged_digest_key_is_refused() {
        let data = tempfile::tempdir().unwrap();
        for damaged in ["", "x", "0g", &"0".repeat(127), &"é".repeat(64)] {
            std::fs::write(data.path().join(FILE), damaged).unwrap();
            assert!(DigestKey::ensure(data.path()).is_err(), "{damaged}");
        }
    }

    #[test]
    fn concurrent_starts_get_one_key() {
        let data = tempfile::tempdir().unwrap();
        let barrier = std::sync::Barrier::new(8);
        let sealed: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let start = || {
                barrier.wait();
                DigestKey::ensure(data.path()).unwrap().seal([7; 32])
            };
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert!(sealed.iter().all(|one| *one == sealed[0]));
        assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn head_key_of_empty_directory_is_absent() {
        let data = tempfile::tempdir().unwrap();
        assert!(head_key(data.path()).unwrap().is_none());
        ensure_head_key(data.path()).unwrap();
        assert!(head_key(data.path()).unwrap().is_some());
    }
}
