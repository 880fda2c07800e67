//! Previews a remembered answer: the entries that it would store, and how many of the last commands
//! would not have asked with them.
//!
//! Recorded commands are parsed again. Links are not resolved, because they may have changed since.
//! The preview considers at most 1000 commands and takes at most 2 s.

use std::time::{Duration, Instant};

use ringwall_ids::{ExecId, UserId};
use ringwall_policy::{CommandLine, HostPath, blocked, normalise};
use ringwall_record::{ApprovalKind, ExecCommand, ExecListFilter, Limit, PathScope, Store};
use ringwall_risk::Locale;
use serde::Serialize;

use super::list::{Listed, read_path};
use crate::auth::principal::Principal;
use crate::blocking;
use crate::boxes::HOME;
use crate::error::Error;
use crate::exec::spec::PROJECT;
use crate::service::Service;

/// Maximum number of commands.
const MAX_COMMANDS: u64 = 1000;
/// Maximum number of pages of execs, each of `MAX_COMMANDS`, that are searched for commands.
const MAX_PAGES: usize = 10;
/// The user interface waits for the preview.
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Preview {
    /// The entries that a remembered answer would store
    pub entries: Vec<PreviewedPath>,
    pub execs: Considered,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PreviewedPath {
    pub path: String,
    /// `global`, or `user:` and the user id
    pub scope: String,
    /// Why the entry is risky
    pub warning: Option<&'static str>,
}

/// The last commands of the users to whom the entries would apply
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Considered {
    pub looked_at: u64,
    /// Commands that ask with the current list and would not ask with the entries
    pub would_allow: u64,
    /// Commands that ask with the current list and would still ask with the entries
    pub would_still_ask: u64,
}

impl Service {
    pub async fn preview_approval(&self, by: &Principal, id: &str, locale: Locale) -> Result<Preview, Error> {
        let asked = self.approval(by, id).await?;
        if asked.kind == ApprovalKind::Network {
            // Hosts are remembered for the user whose box asked. Which commands would connect to
            // them is unknown.
            let scope = PathScope::User(asked.user).text();
            let entry = |path| PreviewedPath { path, scope: scope.clone(), warning: None };
            let entries = asked.requested_paths.into_iter().map(entry).collect();
            return Ok(Preview { entries, execs: Considered::default() });
        }
        // An agent cannot answer; it sees what its user's answer would store.
        let scope = by.remembers_for(&asked.user).unwrap_or(PathScope::User(asked.user.clone()));
        let paths = asked.requested_paths.iter().map(|path| read_path(path)).collect::<Result<Vec<_>, _>>()?;
        let commands = last_commands(&self.inner.store, &scope).await?;
        let mut listed = match &scope {
            PathScope::Global => self.listed_paths().await?,
            PathScope::User(user) => self.listed_for(user).await?,
        };
        listed.retain(|listed| listed.entry.enabled.is_on());
        let execs = blocking::in_place(|| Ok(consider(&commands, &listed, &paths, &scope))).await?;
        let entries = paths.iter().map(|path| PreviewedPath {
            path: path.to_string(),
            scope: scope.text(),
            warning: path.warning_in(locale),
        });
        Ok(Preview { entries: entries.collect(), execs })
    }
}

/// The last commands of the users to whom entries of this scope apply.
async fn last_commands(store: &Store, scope: &PathScope) -> Result<Vec<ExecCommand>, Error> {
    let scope = match scope {
        PathScope::Global => ringwall_record::Scope::All,
        PathScope::User(user) => ringwall_record::Scope::User(user.clone()),
    };
    let filter = ExecListFilter { project_id: Some(PROJECT.to_owned()), ..ExecListFilter::everything(scope) };
    let (mut commands, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let page = store.list(&filter, Limit::nearest(MAX_COMMANDS), cursor).await?;
        // Other execs of this project work on an agent's files, and some with a session are code.
        let of_sessions = page.items.into_iter().filter(|exec| exec.conversation_id.is_some());
        let ids: Vec<ExecId> = of_sessions.map(|exec| exec.exec_id).collect();
        let found = store.commands(&ids).await?;
        commands.extend(found.into_iter().filter(|command| !command.is_code));
        cursor = page.next;
        if cursor.is_none() || commands.len() as u64 >= MAX_COMMANDS {
            break;
        }
    }
    commands.truncate(MAX_COMMANDS as usize);
    Ok(commands)
}

fn consider(commands: &[ExecCommand], listed: &[Listed], more: &[HostPath], scope: &PathScope) -> Considered {
    let begun = Instant::now();
    let mut considered = Considered::default();
    for command in commands {
        if begun.elapsed() > TIMEOUT {
            break;
        }
        considered.looked_at += 1;
        // A command that cannot be parsed was refused, and would be again.
        let Some(named) = named(command) else { continue };
        let own = listed.iter().filter(|listed| applies_to(&listed.entry.scope, &command.user_id));
        let mut entries: Vec<HostPath> = own.map(|listed| listed.path.clone()).collect();
        if blocked(&named, &entries).is_empty() {
            continue;
        }
        if applies_to(scope, &command.user_id) {
            entries.extend(more.iter().cloned());
        }
        match blocked(&named, &entries).is_empty() {
            true => considered.would_allow += 1,
            false => considered.would_still_ask += 1,
        }
    }
    considered
}

fn applies_to(scope: &PathScope, user: &UserId) -> bool {
    match scope {
        PathScope::Global => true,
        PathScope::User(own) => own == user,
    }
}

/// The paths that a recorded command names, with its working directory.
fn named(command: &ExecCommand) -> Option<Vec<HostPath>> {
    let line = CommandLine::read(command.args.last()?).ok()?;
    let mut named = line.operands(&command.cwd, HOME).ok()?;
    named.push(normalise(&command.cwd, "/", Some(HOME)).ok()?);
    Some(named)
}

#[cfg(test)]
mod tests {
    use futures::future::try_join_all;
    use ringwall_record::{Database, HeadKey, NewExec, PathEntry, Start, Switch, Timestamp};
    use serde_json::json;

    use super::*;

    fn command(user: &str, line: &str) -> ExecCommand {
        ExecCommand {
            user_id: user.parse().unwrap(),
            args: vec!["-c".to_owned(), line.to_owned()],
            cwd: "/workspace".to_owned(),
            is_code: false,
        }
    }

    fn listed(path: &str) -> Listed {
        let entry = PathEntry {
            id: 1,
            path: path.to_owned(),
            description: String::new(),
            enabled: Switch::On,
            scope: PathScope::Global,
            created_at: Timestamp::from_milliseconds(0),
            created_by: String::new(),
        };
        Listed { path: read_path(path).unwrap(), entry }
    }

    #[test]
    fn commands_that_ask_with_current_list_are_counted() {
        let commands = [
            command("ann", "ls"),
            command("ann", "cat /srv/known/a"),
            command("ann", "cat /srv/new/a | sort"),
            command("bob", "cat /srv/new/a"),
            command("ann", "cp /srv/new/a /srv/third/b"),
            command("ann", "'"),
        ];
        let (known, new) = ([listed("/srv/known")], [read_path("/srv/new").unwrap()]);
        let count = |scope| {
            let Considered { looked_at, would_allow, would_still_ask } = consider(&commands, &known, &new, &scope);
            (looked_at, would_allow, would_still_ask)
        };
        assert_eq!(count(PathScope::Global), (6, 2, 1));
        assert_eq!(count(PathScope::User("ann".parse().unwrap())), (6, 1, 2));
    }

    #[tokio::test]
    async fn preview_considers_last_1000_session_commands() {
        let directory = tempfile::tempdir().unwrap();
        let store =
            Store::open(Database::Sqlite(directory.path().join("record")), Some(HeadKey::new([7; 32]))).await.unwrap();
        let command = |number: u64| NewExec {
            exec_id: format!("e_{number:016}").parse().unwrap(),
            user_id: "ann".parse().unwrap(),
            agent_id: "default".parse().unwrap(),
            caller: String::new(),
            from: json!({}),
            idempotency: None,
            project_id: PROJECT.to_owned(),
            task_id: None,
            conversation_id: Some("s".to_owned()),
            skill_id: None,
            backend: "native".to_owned(),
            image: None,
            cmd: "bash".to_owned(),
            args: vec!["-c".to_owned(), format!("echo {number}")],
            cwd: "/workspace".to_owned(),
            env_keys: Vec::new(),
            policy_snapshot: json!({}),
            artifacts_path: String::new(),
            created_at: Timestamp::from_milliseconds(0),
            start: Start::AwaitingApproval,
        };
        store.intend(&command(1)).await.unwrap();
        store.intend(&command(2)).await.unwrap();
        try_join_all((3..=1000).map(|number| store.intend(&command(number)))).await.unwrap();
        // Two newer commands, with execs between them that are not commands of a session.
        store.intend(&NewExec { policy_snapshot: json!({ "code": {} }), ..command(1001) }).await.unwrap();
        store.intend(&command(1002)).await.unwrap();
        store.intend(&NewExec { conversation_id: None, ..command(1003) }).await.unwrap();
        store.intend(&command(1004)).await.unwrap();
        let found = last_commands(&store, &PathScope::Global).await.unwrap();
        store.close().await;
        let lines: Vec<&str> = found.iter().filter_map(|command| command.args.last()).map(String::as_str).collect();
        assert_eq!(lines.len(), 1000);
        assert_eq!(lines[..2], ["echo 1004", "echo 1002"]);
        let left = ["echo 1", "echo 2", "echo 1001", "echo 1003"];
        assert!(!lines.iter().any(|line| left.contains(line)), "{:?}", &lines[996..]);
    }
}
