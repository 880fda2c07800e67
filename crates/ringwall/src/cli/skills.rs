//! `ringwall skills push|ls|rm|pull`: manages the skills of an agent on a server.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::agent::{Agent, AgentArguments, data_of};
use crate::cli::{folder, folder::Packed};
use crate::cli::{transfer, transfer::parent_of};
use crate::message::{Message, escape_invisible};

/// Characters of a description that the table shows.
const MAX_DESCRIPTION_CHARS: usize = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum SkillsCommand {
    /// Upload a skill: a folder with a SKILL.md, or a ZIP file of such folders
    Push {
        #[command(flatten)]
        agent: AgentArguments,
        /// Upload it for all users of the agent (owners and operators only); a user's own version overrides it
        #[arg(long)]
        baseline: bool,
        /// Folder or ZIP file
        source: PathBuf,
    },
    /// List the skills
    Ls {
        #[command(flatten)]
        agent: AgentArguments,
    },
    /// Delete a skill
    Rm {
        #[command(flatten)]
        agent: AgentArguments,
        /// Name of the skill
        name: String,
    },
    /// Download a skill as a folder
    Pull {
        #[command(flatten)]
        agent: AgentArguments,
        /// Name of the skill
        name: String,
        /// Directory to create [default: the name of the skill]
        target: Option<PathBuf>,
    },
}

pub(crate) fn run(command: &SkillsCommand, data: &Path) -> ExitCode {
    match command {
        SkillsCommand::Push { agent, baseline, source } => agent.with(data, |agent| {
            let route = if *baseline { agent.baseline_route() } else { agent.route("skills/", "upload", &[]) };
            push(agent, &route, source)
        }),
        SkillsCommand::Ls { agent } => agent.with(data, |agent| {
            let found = agent.request("GET", &agent.route("skills/", "list", &[]), None)?;
            agent.print_result(&found, table)
        }),
        SkillsCommand::Rm { agent, name } => agent.with(data, |agent| {
            let route = agent.route("skills/", "delete", &[("name", name)]);
            agent.print_text(&agent.request("DELETE", &route, None)?)
        }),
        SkillsCommand::Pull { agent, name, target } => agent.with(data, |agent| pull(agent, name, target.as_deref())),
    }
}

fn push(agent: &Agent, route: &str, source: &Path) -> Result<(), Message> {
    let failed = |error: std::io::Error| Message::io(format!("{}: {error}", source.display()));
    let file = File::open(source).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let response = if found.is_dir() {
        let bar = transfer::progress_bar("sending", &source.to_string_lossy(), Some(folder::size(source)));
        let (packed, name) = Packed::start(source, bar.clone())?;
        transfer::upload(&agent.client, route, &format!("{name}.zip"), None, &bar, packed)?
    } else {
        let length = found.is_file().then_some(found.len());
        let bar = transfer::progress_bar("sending", &source.to_string_lossy(), length);
        transfer::upload(&agent.client, route, "skills.zip", length, &bar, bar.wrap_read(file))?
    };
    agent.print_text(&data_of(response)?)
}

fn pull(agent: &Agent, name: &str, target: Option<&Path>) -> Result<(), Message> {
    let target = target.unwrap_or(Path::new(name));
    let response = agent.client.download(&agent.route("", "download", &[("path", &format!("skills/{name}"))]))?;
    if !response.is_archive {
        return Err(Message::new(format!("skills/{name} is a file, not a skill"))
            .with_hint("`ringwall skills ls` lists the skills, `ringwall files get` downloads files"));
    }
    let archive = transfer::save_unnamed(response, name, parent_of(target))?;
    let files = folder::unpack(archive, target)?;
    let result = json!({ "skill": name, "target": target.to_string_lossy(), "files": files });
    agent.print_result(&result, |_| {
        format!("skills/{} -> {}\n", escape_invisible(name), escape_invisible(&target.to_string_lossy()))
    })
}

fn table(skills: &Value) -> String {
    let text = |skill: &Value, key: &str| escape_invisible(skill[key].as_str().unwrap_or_default().trim());
    let skills: Vec<&Value> = skills.as_array().into_iter().flatten().collect();
    let width = skills.iter().map(|skill| text(skill, "name").chars().count()).max().unwrap_or(0).max("NAME".len());
    let mut lines = format!("{:<width$}  DESCRIPTION\n", "NAME");
    for skill in skills {
        let mut description = text(skill, "description");
        if let Some((cut, _)) = description.char_indices().nth(MAX_DESCRIPTION_CHARS) {
            description.truncate(cut);
            description.push('…');
        }
        let _ = writeln!(lines, "{:<width$}  {description}", text(skill, "name"));
        for warning in skill["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let _ = writeln!(lines, "{:<width$}  warning: {}", "", escape_invisible(warning));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_aligned_and_escaped() {
        let skills = json!([
            { "name": "天气", "description": "weather\u{1b}[2J\n" },
            { "name": "long-name", "description": "x".repeat(200), "warnings": ["its name is odd"] },
        ]);
        let expected = format!(
            "NAME       DESCRIPTION\n天气         weather\\u{{1b}}[2J\nlong-name  {}…\n           warning: its name is odd\n",
            "x".repeat(100)
        );
        assert_eq!(table(&skills), expected);
        assert_eq!(table(&json!([])), "NAME  DESCRIPTION\n");
    }
}
