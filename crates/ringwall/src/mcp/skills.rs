//! The operator's skills as tools: a skill with the id `shell.run` is the tool `skill.shell.run` or
//! `skill_shell_run`.
//!
//! Some clients reject names with dots, so the setting `mcp.skill_names` chooses the names that are
//! listed; calls accept both. If two ids have the same plain name, the first skill gets it.

use std::collections::HashSet;
use std::sync::Arc;

use ringwall_policy::NetMode;
use ringwall_service::skills::Skill;
use ringwall_service::{Error, ExecId, InvokeOptions, Service, SkillNames};
use rmcp::model::{CallToolResponse, CallToolResult, JsonObject, Tool};
use serde_json::{Map, Value, json};

use super::call::{Call, Started};
use super::results::{RUN_SUMMARY_SCHEMA, RunSummary};
use super::tools::{Effect, NetworkAccess, annotations};

const PREFIX: &str = "skill.";
const PLAIN_PREFIX: &str = "skill_";
/// Artifacts that the server writes itself and whose content is in the result.
const SERVER_ARTIFACTS: [&str; 3] = ["meta.json", "stderr.txt", "stdout.txt"];

/// The tools of all valid skills.
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
    // A skill has no more network than its manifest requests and the settings allow.
    let network = NetworkAccess::from(net.min(skill.permissions.net.mode));
    let name = match names {
        SkillNames::Dotted => dotted(&skill.id),
        SkillNames::Plain => plain(&skill.id),
    };
    Tool::new(name, skill.description.clone(), Arc::new(inputs(skill)))
        .with_title(skill.name.clone())
        .with_raw_output_schema(RUN_SUMMARY_SCHEMA.clone())
        .with_annotations(annotations(&skill.name, Effect::Changes, network))
}

fn dotted(id: &str) -> String {
    format!("{PREFIX}{id}")
}

fn plain(id: &str) -> String {
    dotted(id).replace('.', "_")
}

/// The inputs of the manifest, and the parameters that every skill has.
fn inputs(skill: &Skill) -> JsonObject {
    let mut schema = skill.interface.inputs.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| json!("object"));
    if let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) {
        let text = |description: &str| json!({ "type": "string", "description": description });
        properties.insert(
            "project_id".to_owned(),
            text("Project that the exec belongs to; default the id of the connection's session"),
        );
        let timeout = json!({ "type": "integer", "minimum": 1, "description": "Timeout in milliseconds" });
        properties.insert("timeout_ms".to_owned(), timeout);
    }
    schema
}

/// The id of the skill that a tool name stands for.
pub(super) async fn find(service: &Service, name: &str) -> Result<Option<String>, Error> {
    if let Some(id) = name.strip_prefix(PREFIX) {
        return match service.find_skill(id).await {
            Ok(skill) => Ok(Some(skill.id.clone())),
            // Skills that are not listed are not tools.
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

impl Call<'_> {
    /// Runs a skill in the connection's workspace.
    pub(super) async fn call_skill(&self, id: &str, arguments: Option<JsonObject>) -> Result<CallToolResponse, Error> {
        let mut body: Map<String, Value> = arguments.unwrap_or_default();
        body.entry("project_id").or_insert_with(|| self.caller.session(None).into());
        body.insert("agent_id".to_owned(), self.caller.agent().into());
        if let Some(user) = self.caller.user() {
            body.insert("user_id".to_owned(), user.into());
        }
        let (principal, options) = (&self.caller.principal, InvokeOptions::default());
        let submitted = self.service.invoke(principal, id, Value::Object(body), options).await?;
        self.wait_for_result(Started::Skill(submitted.exec_id)).await
    }

    /// Adds the artifacts to the result, as resources.
    pub(super) async fn with_artifacts(&self, mut ran: RunSummary) -> Result<CallToolResult, Error> {
        let exec_id: ExecId = ran.exec_id.parse().map_err(Error::from)?;
        let left = self.service.artifacts(&self.caller.principal, &exec_id).await?;
        let names = left.files.iter().map(|file| file.path.as_str()).filter(|name| !SERVER_ARTIFACTS.contains(name));
        ran.artifacts = names.map(|name| super::resources::artifact(&exec_id, name)).collect();
        Ok(ran.into_result())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_name_has_no_dots() {
        assert_eq!(dotted("shell.run"), "skill.shell.run");
        assert_eq!(plain("shell.run"), "skill_shell_run");
    }
}
