//! The name of a skill: one component of a path, in any script.
//!
//! Wider than the names of users and agents, because folders of skills are named by people. Spelling alone; whether the
//! agentskills rules like it is a warning, not a refusal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::tree::{AgentPath, Refusal};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SkillName(String);

impl SkillName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SkillName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        AgentPath::skill(text).map(|_| Self(text.to_owned()))
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for SkillName {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
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
    fn a_name_is_one_component() {
        for good in ["pdf", "数据分析", "My Skill", "a..b", ".hidden", "v1.2", "C:"] {
            assert_eq!(good.parse::<SkillName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(256);
        for bad in ["", ".", "..", "a/b", "/a", "a/", "./a", "a\\b", "a\0b", long.as_str()] {
            assert!(bad.parse::<SkillName>().is_err(), "{bad:?}");
        }
    }
}
