//! The schema of manifests and the two shipped skills, which run the given code.
//!
//! A folder with the same id replaces a shipped skill's manifest, for tighter limits or another
//! description. It cannot change what the skill runs: `shell.run` is always a shell. If the
//! replacement is invalid the shipped manifest does not return, because the operator wanted
//! something else.

pub(super) const SCHEMA: &str = include_str!("../../skills/_schema/manifest.schema.json");

/// A skill that runs its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    Shell,
    Python,
}

impl Builtin {
    pub(super) const ALL: [Self; 2] = [Self::Shell, Self::Python];

    pub(super) fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.id() == id)
    }

    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Shell => "shell.run",
            Self::Python => "python.run",
        }
    }

    pub(super) const fn manifest(self) -> &'static str {
        match self {
            Self::Shell => include_str!("../../skills/shell.run/manifest.json"),
            Self::Python => include_str!("../../skills/python.run/manifest.json"),
        }
    }

    /// The required entrypoint; the script or code follows it.
    pub(super) const fn entrypoint(self) -> &'static [&'static str] {
        match self {
            Self::Shell => &["bash", "-lc"],
            Self::Python => &["python"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::manifest::ManifestValidator;
    use ringwall_policy::{Field, ProjectAccess};
    use serde_json::Value;

    #[test]
    fn shipped_skills_are_valid_within_default_limits() {
        let validator = ManifestValidator::new().expect("the schema compiles");
        for builtin in Builtin::ALL {
            let skill = validator.validate(builtin.id(), builtin.manifest().as_bytes()).expect("a valid manifest");
            assert_eq!(skill.project_access(), ProjectAccess::WIDEST);
            assert!(skill.limits.is_empty());
            // Model providers refuse tools whose inputs have alternatives.
            for keyword in ["anyOf", "oneOf", "allOf"] {
                assert_eq!(skill.interface.inputs.get(keyword), None);
            }
        }
    }

    #[test]
    fn schema_limits_equal_policy_fields() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
        let limits = schema["properties"]["limits"]["properties"].as_object().expect("an object");
        let mut keys: Vec<&str> = limits.keys().map(String::as_str).collect();
        let mut fields = Field::ALL.map(Field::key);
        keys.sort_unstable();
        fields.sort_unstable();
        assert_eq!(keys, fields);
        let places = &schema["$defs"]["places"]["items"]["enum"];
        assert_eq!(*places, serde_json::json!(ringwall_policy::ProjectDir::ALL));
    }
}
