//! What an agent's baselines are at one moment. Whoever holds a snapshot can read every file of it: a version is removed
//! only when no snapshot has it any more.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::baselines::blob::Blob;
use crate::relative_path::RelativePath;
use crate::skills::SkillName;

#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Goes up with every upload; zero where there never was one.
    pub(crate) generation: u64,
    pub(crate) skills: BTreeMap<SkillName, Arc<Version>>,
}

#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) directory: OwnedFd,
    pub(crate) files: Files,
}

/// All files of a version, by their paths in the skill.
pub(crate) type Files = BTreeMap<RelativePath, BaselineFile>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BaselineFile {
    #[serde(flatten)]
    pub(crate) blob: Blob,
    /// The mode of every copy.
    pub(crate) mode: u32,
}

/// A snapshot on the disk.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Current {
    pub(crate) generation: u64,
    pub(crate) skills: BTreeMap<SkillName, u64>,
}
