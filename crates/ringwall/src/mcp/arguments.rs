//! Arguments of the tools. The published schema is derived from the type that the arguments are
//! deserialized into; unknown keys are rejected.

use std::sync::Arc;

use ringwall_service::Language;
use rmcp::model::JsonObject;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CodeArguments {
    /// Source code, at most 1 MiB
    #[schemars(extend("examples" = ["print(6 * 7)"]))]
    pub(super) code: String,
    #[schemars(schema_with = "languages")]
    pub(super) language: Language,
    /// Timeout in seconds; default 30
    #[schemars(range(min = 1, max = 300))]
    pub(super) timeout: Option<u64>,
    /// native, docker, gvisor or aio. It may be stronger than the policy demands, not weaker
    pub(super) backend: Option<String>,
    /// Memory limit in MiB; default 512
    #[schemars(range(min = 1))]
    pub(super) max_memory_mb: Option<u64>,
    /// Files to write into the session's workspace before the run
    #[serde(default)]
    pub(super) files: Vec<NewFile>,
    /// Session whose files the code uses; default the connection's session. Code and commands of
    /// one session share its files
    pub(super) session_id: Option<String>,
    /// Python and JavaScript: runs the code in an interpreter of the session that keeps its
    /// variables between calls with the same id; a new id creates one
    pub(super) context_id: Option<String>,
}

fn languages(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Language::ALL.map(Language::key) })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewFile {
    /// Path relative to the session's workspace
    pub(super) path: String,
    pub(super) content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandArguments {
    /// Command line for bash
    #[schemars(extend("examples" = ["wc -l data/*.csv > output/lines.txt"]))]
    pub(super) command: String,
    /// Working directory: /workspace (default) or below, or an allowed directory of the host
    pub(super) cwd: Option<String>,
    /// Timeout in milliseconds
    #[schemars(range(min = 1))]
    pub(super) timeout_ms: Option<u64>,
    /// Session whose files the command uses; default the connection's session. Code and commands of
    /// one session share its files
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkillArguments {
    /// Directory name of the skill in skills/
    #[schemars(extend("examples" = ["report"]))]
    pub(super) skill: String,
    /// Name of the program: python3, bash, ls or another one that the operator allows
    #[schemars(extend("examples" = ["python3"]))]
    pub(super) command: String,
    /// Arguments of the program, passed without a shell. Paths are relative to the skill's
    /// directory
    #[serde(default)]
    #[schemars(extend("examples" = [["main.py", "--year", "2026"]]))]
    pub(super) args: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// Path relative to the session's workspace; files/… and skills/… are the agent's own files
    #[schemars(extend("examples" = ["output/lines.txt", "skills/report/SKILL.md"]))]
    pub(super) path: String,
    /// First line to return, counted from 1; default 1
    #[schemars(range(min = 1))]
    pub(super) offset: Option<u64>,
    /// Number of lines to return at most; default all
    #[schemars(range(min = 1))]
    pub(super) limit: Option<u64>,
    /// Session that a relative path belongs to; default the connection's session
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    /// Path relative to the session's workspace; files/… and skills/… are the agent's own files
    pub(super) path: String,
    /// The whole content of the file
    pub(super) content: String,
    /// Session that a relative path belongs to; default the connection's session
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditArguments {
    /// Path relative to the session's workspace; files/… and skills/… are the agent's own files
    pub(super) path: String,
    /// Exact text to replace
    pub(super) old_string: String,
    /// Replacement text
    pub(super) new_string: String,
    /// Number of occurrences of old_string in the file; default 1. If the file has another number,
    /// nothing is changed
    #[schemars(range(min = 1))]
    pub(super) expected_replacements: Option<u64>,
    /// Session that a relative path belongs to; default the connection's session
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {
    /// Directory to list; default the session's workspace. files and skills are the agent's own
    /// directories
    pub(super) path: Option<String>,
    /// Session that a relative path belongs to; default the connection's session
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteArguments {
    /// File or directory to delete; a directory is deleted with its content
    pub(super) path: String,
    /// Session that a relative path belongs to; default the connection's session
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusArguments {
    /// approval_id of an approval_pending result
    pub(super) approval_id: String,
}

/// Deserializes a tool's arguments. The error is a message for the client.
pub(super) fn read<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, String> {
    let arguments = Value::Object(arguments.unwrap_or_default());
    serde_json::from_value(arguments).map_err(|error| format!("arguments: {error}"))
}

/// The JSON schema of a type, without keywords that only serve Rust programs.
pub(super) fn schema<T: JsonSchema>() -> Arc<JsonObject> {
    let settings =
        schemars::generate::SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut value = Value::from(schema);
    plain(&mut value);
    match value {
        Value::Object(mut object) => {
            for name in ["$schema", "title", "description"] {
                object.remove(name);
            }
            Arc::new(object)
        }
        _ => Arc::default(),
    }
}

/// Removes `null` from the types of optional fields, which clients leave out, and integer formats
/// such as `uint64`.
fn plain(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::Array(kinds)) = object.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = kinds.as_slice() {
                    let kind = kind.clone();
                    object.insert("type".to_owned(), kind);
                }
            }
            if object.get("format").and_then(Value::as_str).is_some_and(|format| format.contains("int")) {
                object.remove("format");
            }
            object.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_matches_accepted_arguments() {
        let schema = Value::Object(schema::<CommandArguments>().as_ref().clone());
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["command"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["timeout_ms"]["type"], "integer");
        assert!(schema["properties"]["timeout_ms"].get("format").is_none());
        let object = |value: Value| value.as_object().cloned();
        assert!(read::<CommandArguments>(object(json!({"command": "ls", "cwd": "/workspace"}))).is_ok());
        for wrong in [json!({}), json!({"command": 1}), json!({"command": "ls", "comand": "x"})] {
            assert!(read::<CommandArguments>(object(wrong.clone())).is_err(), "{wrong}");
        }
        assert!(read::<CommandArguments>(None).is_err());
    }
}
