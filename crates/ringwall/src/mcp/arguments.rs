//! What each tool takes. A tool's published schema is made of the very type that its arguments are read into, so that what is
//! published is what holds; a key that nobody knows is refused.

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
    /// At most 1 MiB
    #[schemars(extend("examples" = ["print(6 * 7)"]))]
    pub(super) code: String,
    #[schemars(schema_with = "languages")]
    pub(super) language: Language,
    /// How long it may take, in seconds; 30 unless said
    #[schemars(range(min = 1, max = 300))]
    pub(super) timeout: Option<u64>,
    /// native, docker, gvisor or aio: a stronger box than is demanded, never a weaker one
    pub(super) backend: Option<String>,
    /// 512 unless said
    #[schemars(range(min = 1))]
    pub(super) max_memory_mb: Option<u64>,
    /// Written to the session's workspace before it runs
    #[serde(default)]
    pub(super) files: Vec<NewFile>,
    /// Whose files it works on; commands and code of one session share them
    pub(super) session_id: Option<String>,
    /// Python and JavaScript: an interpreter of the session that keeps its variables from call to call; a new name makes one
    pub(super) context_id: Option<String>,
}

fn languages(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Language::ALL.map(Language::key) })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewFile {
    /// Relative to the session's workspace
    pub(super) path: String,
    pub(super) content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandArguments {
    /// A line of bash
    #[schemars(extend("examples" = ["wc -l data/*.csv > output/lines.txt"]))]
    pub(super) command: String,
    /// Where it starts: /workspace unless said, or a directory of the host that is allowed
    pub(super) cwd: Option<String>,
    /// How long it may take, in milliseconds
    #[schemars(range(min = 1))]
    pub(super) timeout_ms: Option<u64>,
    /// Whose files it works on; commands and code of one session share them
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SkillArguments {
    /// The skill, by the name of its directory in skills/
    #[schemars(extend("examples" = ["report"]))]
    pub(super) skill: String,
    /// The program, by its name: python3, bash, ls and others that the operator allows
    #[schemars(extend("examples" = ["python3"]))]
    pub(super) command: String,
    /// Its arguments, each as it is; paths are relative to the skill
    #[serde(default)]
    #[schemars(extend("examples" = [["main.py", "--year", "2026"]]))]
    pub(super) args: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// Relative to the session's workspace; files/… and skills/… are the agent's own
    #[schemars(extend("examples" = ["output/lines.txt", "skills/report/SKILL.md"]))]
    pub(super) path: String,
    /// The first line, counted from 1
    #[schemars(range(min = 1))]
    pub(super) offset: Option<u64>,
    /// How many lines
    #[schemars(range(min = 1))]
    pub(super) limit: Option<u64>,
    /// Whose workspace, where the path is relative to one
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    /// Relative to the session's workspace; files/… and skills/… are the agent's own
    pub(super) path: String,
    /// The whole content
    pub(super) content: String,
    /// Whose workspace, where the path is relative to one
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditArguments {
    /// Relative to the session's workspace; files/… and skills/… are the agent's own
    pub(super) path: String,
    /// What is there, exactly
    pub(super) old_string: String,
    /// What is to be there instead
    pub(super) new_string: String,
    /// How often it is there: 1 unless said. Any other count changes nothing
    #[schemars(range(min = 1))]
    pub(super) expected_replacements: Option<u64>,
    /// Whose workspace, where the path is relative to one
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {
    /// A directory: the session's workspace unless said; files and skills are the agent's own
    pub(super) path: Option<String>,
    /// Whose workspace, where the path is relative to one
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteArguments {
    /// A file, or a directory with everything in it
    pub(super) path: String,
    /// Whose workspace, where the path is relative to one
    pub(super) session_id: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusArguments {
    /// The id that an `approval_pending` result has given
    pub(super) approval_id: String,
}

/// What was sent, as a tool takes it; otherwise what is wrong with it, for whoever sent it to put right.
pub(super) fn read<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, String> {
    let arguments = Value::Object(arguments.unwrap_or_default());
    serde_json::from_value(arguments).map_err(|error| format!("arguments: {error}"))
}

/// The schema of a type, without what only other programs of Rust could read.
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

/// What may be left out is left out and not `null`; how wide a number is in here concerns nobody.
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
    fn a_schema_says_what_is_read() {
        let schema = Value::Object(schema::<CommandArguments>().as_ref().clone());
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["command"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["timeout_ms"]["type"], "integer");
        assert!(schema["properties"]["timeout_ms"].get("format").is_none());
        let said = |value: Value| value.as_object().cloned();
        assert!(read::<CommandArguments>(said(json!({"command": "ls", "cwd": "/workspace"}))).is_ok());
        for wrong in [json!({}), json!({"command": 1}), json!({"command": "ls", "comand": "x"})] {
            assert!(read::<CommandArguments>(said(wrong.clone())).is_err(), "{wrong}");
        }
        assert!(read::<CommandArguments>(None).is_err());
    }
}
