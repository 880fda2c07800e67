//! The signature of the audit chain's head.
//!
//! `audit_head` holds the number and hash of the newest entry with an HMAC-SHA256 of both. The key
//! is not in the database, so a program that can write the database but cannot read the key can cut
//! or rewrite the chain, but cannot sign the head that this leaves. An older head keeps its valid
//! signature: a database put back to an older state as a whole is noticed only by a writer that was
//! running meanwhile, or by comparison with a head that was stored elsewhere.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

use crate::audit::entry::{Draft, Link};
use crate::db::driver::Row;
use crate::db::statement::Statement;
use crate::digest::Digest;
use crate::error::Error;
use crate::store::Store;
use crate::timestamp::Timestamp;

pub(crate) const SELECT_HEAD: &str = "SELECT seq, hash, mac FROM audit_head";
pub(crate) const SIGNED_ACTION: &str = "audit.signed";

/// The block size of SHA-256. HMAC pads shorter keys with zeros to this length.
const BLOCK: usize = 64;

/// Signs and checks heads. Holds the keyed state, so that the key is not hashed for each signature.
#[derive(Clone)]
pub struct HeadKey(Hmac<Sha256>);

impl HeadKey {
    pub fn new(key: [u8; 32]) -> Self {
        let mut block = [0; BLOCK];
        block[..key.len()].copy_from_slice(&key);
        Self(Hmac::new(&block.into()))
    }

    pub(crate) fn sign(&self, head: Link) -> Vec<u8> {
        self.mac(head).finalize().into_bytes().to_vec()
    }

    pub(crate) fn is_signed(&self, head: Link, mac: &[u8]) -> bool {
        self.mac(head).verify_slice(mac).is_ok()
    }

    fn mac(&self, head: Link) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(Digest::of_fields("ringwall audit head 1", &[head.seq.into(), head.hash.into()]).as_bytes());
        mac
    }
}

/// Does not print the key.
impl fmt::Debug for HeadKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HeadKey(…)")
    }
}

/// The row of `audit_head`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredHead {
    pub(crate) link: Link,
    /// As stored: any length, NULL before the first signature.
    pub(crate) mac: Option<Vec<u8>>,
}

impl StoredHead {
    pub(crate) fn read(row: Option<&Row>) -> Result<Self, Error> {
        let link = Link::read(row, "audit_head")?;
        let mac = row.map(|row| row.read("audit_head", "seq", |row| row.get("mac"))).transpose()?.flatten();
        Ok(Self { link, mac })
    }
}

/// The state of the head that a writer finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadState {
    /// Signed with our key, or the head of an empty chain.
    Signed,
    /// No signature, although the chain has entries.
    Removed,
    /// A signature that our key did not make.
    Foreign,
    /// Signed, but older than the head that this process wrote last.
    Older,
}

impl HeadState {
    fn as_str(self) -> &'static str {
        match self {
            HeadState::Signed => "signed",
            HeadState::Removed => "removed",
            HeadState::Foreign => "foreign",
            HeadState::Older => "older",
        }
    }

    /// The entry about a head in this state that is replaced by a signed one. Without it a cut
    /// chain would look intact after the next entry.
    pub(crate) fn draft(self, through: i64, at: Timestamp) -> Draft {
        let detail = json!({ "found": self.as_str(), "through": through });
        Draft::new(at, "ringwall", SIGNED_ACTION, "audit", detail)
    }
}

/// The writer's key, and the head that it committed last.
#[derive(Debug)]
pub(crate) struct Signer {
    pub(crate) key: HeadKey,
    last: Option<StoredHead>,
}

impl Signer {
    pub(crate) fn new(key: HeadKey) -> Self {
        Self { key, last: None }
    }

    /// Classifies the head in the database. For the head that this process wrote last no HMAC is
    /// computed.
    pub(crate) fn judge(&self, found: &StoredHead) -> HeadState {
        if self.last.as_ref() == Some(found) {
            return HeadState::Signed;
        }
        let Some(mac) = &found.mac else {
            let is_new = self.last.is_none() && found.link.seq == 0;
            return if is_new { HeadState::Signed } else { HeadState::Removed };
        };
        if !self.key.is_signed(found.link, mac) {
            return HeadState::Foreign;
        }
        // Other processes only append, so an equal number has an equal hash.
        match &self.last {
            Some(last) if found.link.seq <= last.link.seq => HeadState::Older,
            _ => HeadState::Signed,
        }
    }

    /// Stores the head that was committed.
    pub(crate) fn committed(&mut self, head: StoredHead) {
        self.last = Some(head);
    }
}

impl Store {
    /// For commands that write to the database without being its server. A head that this key did
    /// not sign belongs to another data directory or was changed. The next entry would sign it with
    /// this key and leave a permanent [`crate::Finding::HeadReplaced`], so the command must stop
    /// before it writes.
    pub async fn require_own_head(&self) -> Result<(), Error> {
        let key = self.key().ok_or(Error::NoKey)?;
        let query = Statement::new("read the head of the audit chain", SELECT_HEAD);
        let head = StoredHead::read(self.readers().row(query).await?.as_ref())?;
        match Signer::new(key.clone()).judge(&head) {
            HeadState::Signed => Ok(()),
            HeadState::Removed | HeadState::Foreign | HeadState::Older => {
                Err(Error::HeadNotOurs { seq: head.link.seq })
            }
        }
    }

    /// For the start of a server: signs a head that this key has not signed, and appends an entry
    /// about it.
    pub async fn sign_head(&self, at: Timestamp) -> Result<(), Error> {
        self.submit(async move |ledger| {
            ledger.require_signature(at);
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(seq: i64, byte: u8) -> Link {
        Link { seq, hash: Digest::from_bytes([byte; 32]) }
    }

    fn stored(link: Link, mac: Option<Vec<u8>>) -> StoredHead {
        StoredHead { link, mac }
    }

    #[test]
    fn signature_covers_number_hash_and_key() {
        let key = HeadKey::new([1; 32]);
        let mac = key.sign(head(5, 7));
        assert!(key.is_signed(head(5, 7), &mac));
        assert!(!key.is_signed(head(6, 7), &mac));
        assert!(!key.is_signed(head(5, 8), &mac));
        assert!(!HeadKey::new([2; 32]).is_signed(head(5, 7), &mac));
        assert!(!key.is_signed(head(5, 7), &mac[..16]));
    }

    #[test]
    fn writer_distinguishes_removed_foreign_and_older_signatures() {
        let mut signer = Signer::new(HeadKey::new([1; 32]));
        let ours = |seq| stored(head(seq, 7), Some(HeadKey::new([1; 32]).sign(head(seq, 7))));
        assert_eq!(signer.judge(&stored(head(0, 0), None)), HeadState::Signed);
        assert_eq!(signer.judge(&stored(head(5, 7), None)), HeadState::Removed);
        assert_eq!(signer.judge(&stored(head(5, 7), Some(vec![0; 32]))), HeadState::Foreign);
        assert_eq!(signer.judge(&ours(5)), HeadState::Signed);
        signer.committed(ours(6));
        assert_eq!(signer.judge(&ours(6)), HeadState::Signed);
        assert_eq!(signer.judge(&ours(7)), HeadState::Signed);
        assert_eq!(signer.judge(&ours(5)), HeadState::Older);
        assert_eq!(signer.judge(&stored(head(0, 0), None)), HeadState::Removed);
        assert_eq!(signer.judge(&stored(head(7, 7), None)), HeadState::Removed);
    }

    #[test]
    fn key_is_not_printed() {
        assert_eq!(format!("{:?}", HeadKey::new([65; 32])), "HeadKey(…)");
    }
}
