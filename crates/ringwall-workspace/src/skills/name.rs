//! The name of a skill: one path component in any script.
//!
//! People name the folders of skills, so more characters are allowed than in user and agent ids. A
//! name that breaks the agentskills rules is valid here and gets a warning in the list.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::tree::{AgentPath, FilesError};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SkillName(String);

impl SkillName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SkillName {
    type Err = FilesError;

    fn from_str(text: &str) -> Result<Self, FilesError> {
        AgentPath::skill(text).map(|_| Self(text.to_owned()))
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for SkillName {
    type Error = FilesError;

    fn try_from(text: String) -> Result<Self, FilesError> {
        text.parse()
    }
}

impl From<SkillName> for String {
    fn from(name: SkillName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_component_is_accepted() {
        for name in ["pdf", "数据分析", "My Skill", "a..b", ".hidden", "v1.2", "C:"] {
            assert_eq!(name.parse::<SkillName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn other_paths_are_rejected() {
        let long = "a".repeat(256);
        for name in ["", ".", "..", "a/b", "/a", "a/", "./a", "a\\b", "a\0b", long.as_str()] {
            assert!(name.parse::<SkillName>().is_err(), "{name:?}");
        }
    }
}
