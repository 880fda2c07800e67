//! The names of skills in tool lists: a setting, because some clients refuse names with a dot.

use serde::{Deserialize, Serialize};

/// Settings for MCP clients.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct McpPart {
    pub(crate) skill_names: SkillNames,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillNames {
    /// `skill.` and the id.
    #[default]
    Dotted,
    /// With `_` instead of dots.
    Plain,
}
