//! The baselines of an agent at one moment. The versions of a snapshot are not removed while it is
//! in use.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fs::read::read_digest;
use crate::relative_path::RelativePath;
use crate::skills::SkillName;

#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Incremented by each upload; 0 before the first.
    pub(crate) generation: u64,
    pub(crate) skills: BTreeMap<SkillName, Arc<Version>>,
}

#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) directory: OwnedFd,
    pub(crate) files: Files,
}

/// All files of a version by their path in the skill.
pub(crate) type Files = BTreeMap<RelativePath, BaselineFile>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BaselineFile {
    #[serde(flatten)]
    pub(crate) blob: Blob,
    /// Mode bits of every copy.
    pub(crate) mode: u32,
}

/// The persistent form of a snapshot.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Current {
    pub(crate) generation: u64,
    pub(crate) skills: BTreeMap<SkillName, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Blob {
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

impl Blob {
    /// Reads up to `max_size` + 1 bytes: a longer file differs from every blob that the caller
    /// compares it with.
    pub(crate) fn of(file: &File, max_size: u64) -> io::Result<Self> {
        let (size, sha256) = read_digest(file.take(max_size.saturating_add(1)))?;
        Ok(Self { size, sha256 })
    }
}
