//! Skills as tools: each manifest is one, called `skill.` and its id.
//!
//! Some clients refuse a name with a dot; for them a setting lists each under its name with `_` in the place of dots. A call
//! finds its skill by either name, whatever is listed. Where two ids become one name, the first keeps it.

use std::collections::HashSet;
use std::sync::Arc;

use ringwall_policy::NetMode;
use ringwall_service::skills::Skill;
use ringwall_service::{Error, ExecId, InvokeOptions, Service, SkillNames};
use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde_json::{Map, Value, json};

use super::answers::{RAN, Ran};
use super::tools::{Effect, World, annotations};
use super::who::Who;

const PREFIX: &str = "skill.";
const PLAIN_PREFIX: &str = "skill_";
/// What the server keeps among an exec's artifacts, and the answer has already.
const TOLD: [&str; 3] = ["meta.json", "stderr.txt", "stdout.txt"];

/// Every skill that can be called, as it is listed.
pub(super) async fn described(service: &Service) -> Result<Vec<Tool>, Error> {
    let (names, net) = (service.skill_names(), service.net_mode());
    let (mut tools, mut known) = (Vec::new(), HashSet::new());
    for skill in service.skills().await?.skills {
        let tool = describe(&skill, names, net);
        if known.insert(tool.name.clone()) {
            tools.push(tool);
        }
    }
    Ok(tools)
}

fn describe(skill: &Skill, names: SkillNames, net: NetMode) -> Tool {
    // A skill has what it asks for, and never more than there is.
    let world = World::from(net.min(skill.permissions.net.mode));
    let name = match names {
        SkillNames::Dotted => dotted(&skill.id),
        SkillNames::Plain => plain(&skill.id),
    };
    Tool::new(name, skill.description.clone(), Arc::new(inputs(skill)))
        .with_title(skill.name.clone())
        .with_raw_output_schema(RAN.clone())
        .with_annotations(annotations(&skill.name, Effect::Changes, world))
}

fn dotted(id: &str) -> String {
    format!("{PREFIX}{id}")
}

fn plain(id: &str) -> String {
    dotted(id).replace('.', "_")
}

/// What the manifest says, and what every call may say beside it.
fn inputs(skill: &Skill) -> JsonObject {
    let mut schema = skill.interface.inputs.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| json!("object"));
    if let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) {
        let text = |words: &str| json!({ "type": "string", "description": words });
        properties.insert("project_id".to_owned(), text("In whose history it belongs: the session's unless said"));
        let timeout =
            json!({ "type": "integer", "minimum": 1, "description": "How long it may take, in milliseconds" });
        properties.insert("timeout_ms".to_owned(), timeout);
    }
    schema
}

/// The id of the skill that a tool's name means, if it means one.
pub(super) async fn find(service: &Service, name: &str) -> Result<Option<String>, Error> {
    if let Some(id) = name.strip_prefix(PREFIX) {
        return match service.find_skill(id).await {
            Ok(skill) => Ok(Some(skill.id.clone())),
            // What is not listed is no tool.
            Err(Error::NotFound { .. } | Error::InvalidManifest { .. }) => Ok(None),
            Err(error) => Err(error),
        };
    }
    if !name.starts_with(PLAIN_PREFIX) {
        return Ok(None);
    }
    let skills = service.skills().await?.skills;
    Ok(skills.iter().find(|skill| plain(&skill.id) == name).map(|skill| skill.id.clone()))
}

/// Begins a call, in the connection's own workspace.
pub(super) async fn begin(
    service: &Service,
    who: &Who,
    id: &str,
    arguments: Option<JsonObject>,
) -> Result<ExecId, Error> {
    let mut body: Map<String, Value> = arguments.unwrap_or_default();
    body.entry("project_id").or_insert_with(|| who.session(None).into());
    body.insert("agent_id".to_owned(), who.agent().into());
    if let Some(user) = who.user() {
        body.insert("user_id".to_owned(), user.into());
    }
    let submitted = service.invoke(&who.principal, id, Value::Object(body), InvokeOptions::default()).await?;
    Ok(submitted.exec_id)
}

/// Adds what it left, as resources to be read.
pub(super) async fn with_artifacts(service: &Service, who: &Who, mut ran: Ran) -> Result<CallToolResult, Error> {
    let exec_id: ExecId = ran.exec_id.parse().map_err(Error::from)?;
    let left = service.artifacts(&who.principal, &exec_id).await?;
    let names = left.files.iter().map(|file| file.path.as_str()).filter(|name| !TOLD.contains(name));
    ran.artifacts = names.map(|name| super::resources::artifact(&exec_id, name)).collect();
    Ok(ran.into_result())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_an_alias_without_dots() {
        assert_eq!(dotted("shell.run"), "skill.shell.run");
        assert_eq!(plain("shell.run"), "skill_shell_run");
    }
}
