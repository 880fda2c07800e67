//! The access of a skill to the directories of a project, as bind mounts can enforce it.
//!
//! A bind mount covers a whole directory and has two modes, so a directory is empty, read-only or
//! writable. Finer patterns (`work/sub/**`, `inputs/*.csv`) cannot be enforced and are rejected.
//! Two more consequences: write access includes read access, and inputs are read-only in every box
//! even if the manifest asks for more.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{Error, quote};

/// A directory of a project that a box can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProjectDir {
    Inputs,
    Work,
    Artifacts,
}

impl ProjectDir {
    pub const ALL: [Self; 3] = [Self::Inputs, Self::Work, Self::Artifacts];

    /// The whole directory, as manifests write it.
    pub const fn glob(self) -> &'static str {
        match self {
            Self::Inputs => "inputs/**",
            Self::Work => "work/**",
            Self::Artifacts => "artifacts/**",
        }
    }
}

impl fmt::Display for ProjectDir {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.glob())
    }
}

impl FromStr for ProjectDir {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|directory| directory.glob() == text)
            .ok_or_else(|| Error::ProjectDirUnknown { given: quote(text) })
    }
}

impl Serialize for ProjectDir {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.glob())
    }
}

impl<'de> Deserialize<'de> for ProjectDir {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// `permissions.fs` of a manifest. A directory in neither list is empty in the box.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePermissions {
    #[serde(default)]
    pub read: Vec<ProjectDir>,
    #[serde(default)]
    pub write: Vec<ProjectDir>,
}

impl FilePermissions {
    /// The mounts that enforce these permissions.
    pub fn project_access(&self) -> ProjectAccess {
        ProjectAccess {
            inputs: self.access_to(ProjectDir::Inputs).min(Access::ReadOnly),
            work: self.access_to(ProjectDir::Work),
            artifacts: self.access_to(ProjectDir::Artifacts),
        }
    }

    fn access_to(&self, directory: ProjectDir) -> Access {
        if self.write.contains(&directory) {
            Access::ReadWrite
        } else if self.read.contains(&directory) {
            Access::ReadOnly
        } else {
            Access::Empty
        }
    }
}

/// The access of a box to a directory. Ordered from strict to wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// An empty read-only directory.
    Empty,
    ReadOnly,
    ReadWrite,
}

/// The access of a box to the directories of its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProjectAccess {
    pub inputs: Access,
    pub work: Access,
    pub artifacts: Access,
}

impl ProjectAccess {
    /// The access of an exec without a skill, and the maximum for all execs.
    pub const WIDEST: Self = Self { inputs: Access::ReadOnly, work: Access::ReadWrite, artifacts: Access::ReadWrite };
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Empty, ReadOnly, ReadWrite};
    use ProjectDir::{Artifacts, Inputs, Work};

    #[test]
    fn mounts_match_permissions() {
        type Row = (&'static [ProjectDir], &'static [ProjectDir], (Access, Access, Access));
        let table: [Row; 9] = [
            (&[], &[], (Empty, Empty, Empty)),
            (&[Inputs], &[], (ReadOnly, Empty, Empty)),
            (&[Work], &[], (Empty, ReadOnly, Empty)),
            (&[], &[Work], (Empty, ReadWrite, Empty)),
            (&[], &[Artifacts], (Empty, Empty, ReadWrite)),
            (&[Artifacts], &[], (Empty, Empty, ReadOnly)),
            (&[Inputs, Work], &[Work, Artifacts], (ReadOnly, ReadWrite, ReadWrite)),
            // Inputs are never writable.
            (&[], &[Inputs], (ReadOnly, Empty, Empty)),
            (&ProjectDir::ALL, &ProjectDir::ALL, (ReadOnly, ReadWrite, ReadWrite)),
        ];
        for (read, write, (inputs, work, artifacts)) in table {
            let permissions = FilePermissions { read: read.into(), write: write.into() };
            assert_eq!(permissions.project_access(), ProjectAccess { inputs, work, artifacts }, "{permissions:?}");
        }
        let all = FilePermissions { read: ProjectDir::ALL.into(), write: ProjectDir::ALL.into() };
        assert_eq!(all.project_access(), ProjectAccess::WIDEST);
    }

    #[test]
    fn partial_directory_is_rejected() -> Result<(), serde_json::Error> {
        let read: FilePermissions = serde_json::from_str(r#"{"read":["inputs/**"],"write":["work/**"]}"#)?;
        assert_eq!(read, FilePermissions { read: vec![Inputs], write: vec![Work] });
        assert_eq!(serde_json::to_string(&read)?, r#"{"read":["inputs/**"],"write":["work/**"]}"#);
        for glob in [
            "",
            "**",
            "work",
            "work/",
            "work/*",
            "work/sub/**",
            "work/../**",
            "inputs/*.csv",
            "/work/**",
            "/etc/**",
            "../**",
            "WORK/**",
            "work/**\0",
        ] {
            assert_eq!(glob.parse::<ProjectDir>(), Err(Error::ProjectDirUnknown { given: quote(glob) }));
            let text = serde_json::json!({ "read": [glob] }).to_string();
            let error = serde_json::from_str::<FilePermissions>(&text).expect_err(glob);
            assert!(error.to_string().contains("inputs/**, work/**, artifacts/**"), "{error}");
        }
        assert!(serde_json::from_str::<FilePermissions>(r#"{"execute":[]}"#).is_err());
        Ok(())
    }
}
