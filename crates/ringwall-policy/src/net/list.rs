//! A list of hosts that may be reached. An empty list allows nothing.
//!
//! Entries that others cover are dropped, so that lists with equal meaning are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::error::Error;

use super::entry::{DEFAULT_PORTS, NetEntry, Pattern};
use super::host::NetHost;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetList(Arc<BTreeSet<NetEntry>>);

impl NetList {
    /// Every exec compares the list, so its length is limited.
    pub const MAX_LEN: usize = 256;

    /// Parses entries in their public form.
    pub fn read<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        let mut entries = BTreeSet::new();
        for (count, text) in texts.into_iter().enumerate() {
            if count >= Self::MAX_LEN {
                return Err(Error::NetListTooLong { max: Self::MAX_LEN });
            }
            entries.extend(NetEntry::read(text.as_ref())?);
        }
        let is_covered = |entry: &NetEntry| entries.iter().any(|other| other != entry && other.covers(entry));
        let needed = entries.iter().filter(|entry| !is_covered(entry)).cloned().collect();
        Ok(Self(Arc::new(needed)))
    }

    /// The entry that allows a host and port.
    pub fn find(&self, host: &NetHost, port: u16) -> Option<&NetEntry> {
        self.0.iter().find(|entry| entry.matches(host, port))
    }

    /// The first entry of `other` that no entry of this list covers.
    pub fn exceeded_by<'a>(&self, other: &'a Self) -> Option<&'a NetEntry> {
        other.0.iter().find(|entry| !self.0.iter().any(|own| own.covers(entry)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The public form: an entry with ports 80 and 443 is written without a port.
    pub fn words(&self) -> Vec<String> {
        let mut ports: BTreeMap<&Pattern, BTreeSet<u16>> = BTreeMap::new();
        for entry in self.0.iter() {
            ports.entry(&entry.pattern).or_default().insert(entry.port);
        }
        let words = ports.into_iter().flat_map(|(pattern, mut ports)| {
            let default = DEFAULT_PORTS.iter().all(|port| ports.contains(port));
            if default {
                ports.retain(|port| !DEFAULT_PORTS.contains(port));
            }
            let others = ports.into_iter().map(move |port| format!("{pattern}:{port}"));
            default.then(|| pattern.to_string()).into_iter().chain(others).collect::<Vec<_>>()
        });
        words.collect()
    }
}

impl Serialize for NetList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for NetList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Self::read(texts).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> NetList {
        NetList::read(texts).unwrap()
    }

    #[test]
    fn lists_with_same_meaning_are_equal() {
        assert_eq!(list(&["a.com", "A.COM.", "a.com:443"]), list(&["a.com:80", "a.com:443"]));
        assert_eq!(list(&["*.a.com", "b.a.com", "*.c.a.com:80"]), list(&["*.a.com"]));
        assert_ne!(list(&["*.a.com"]), list(&["*.a.com", "a.com"]));
    }

    #[test]
    fn list_is_parsed_from_its_own_words() {
        let words = list(&["b.com:22", "*.a.com", "b.com", "c.com:443"]).words();
        assert_eq!(words, ["b.com", "b.com:22", "c.com:443", "*.a.com"]);
        assert_eq!(NetList::read(&words).unwrap().words(), words);
        assert!(list(&[]).find(&"a.com".parse().unwrap(), 443).is_none());
    }

    #[test]
    fn list_above_maximum_length_is_rejected() {
        let many = |count: usize| NetList::read((0..count).map(|number| format!("a{number}.com")));
        assert!(many(NetList::MAX_LEN).is_ok() && many(NetList::MAX_LEN + 1).is_err());
    }
}
