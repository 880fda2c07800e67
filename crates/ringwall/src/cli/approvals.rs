//! `ringwall approvals list|show|answer`: lists and answers approvals of a server.
//!
//! Text that an agent can influence is escaped ([`escape_invisible`]) before it is printed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ringwall_record::{CoveredFile, UncoveredFile};
use serde_json::{Value, json};

use crate::cli::agent::encode;
use crate::cli::approvals_watch::watch;
use crate::cli::audit::print;
use crate::cli::client::{Client, ServerArguments};
use crate::cli::message::{Message, escape_invisible};

/// Separates the lines of one field; indents them to the column of the values.
const NEXT_ROW: &str = "\n           ";

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List approvals, newest first
    List {
        #[command(flatten)]
        server: ServerArguments,
        /// Only this status: pending, approved, remembered, denied, expired or cancelled
        #[arg(long, value_name = "STATUS")]
        status: Option<String>,
        /// Maximum number of approvals
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u64,
        /// Print the server's JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an approval in full
    Show {
        #[command(flatten)]
        server: ServerArguments,
        /// Id of the approval, as `approvals list` shows it
        id: String,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Answer an approval
    Answer {
        #[command(flatten)]
        server: ServerArguments,
        /// Id of the approval, as `approvals list` shows it
        id: String,
        #[command(flatten)]
        choice: Choice,
        /// Reason, shown to the caller and recorded
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show each new approval and prompt for an answer
    Watch {
        #[command(flatten)]
        server: ServerArguments,
        /// Print each opened and each resolved approval as a line of JSON, without prompting
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Choice {
    /// Allow it once
    #[arg(long)]
    allow: bool,
    /// Allow it, and add its paths or hosts to the allowed ones
    #[arg(long)]
    remember: bool,
    /// Deny it
    #[arg(long)]
    deny: bool,
}

pub(crate) fn run(command: &ApprovalsCommand, data: &Path) -> ExitCode {
    let (done, is_json) = match command {
        ApprovalsCommand::List { server, status, limit, json } => {
            (list(server, data, status.as_deref(), *limit, *json), *json)
        }
        ApprovalsCommand::Show { server, id, json } => (show(server, data, id, *json), *json),
        ApprovalsCommand::Answer { server, id, choice, reason, json } => {
            (answer(server, data, id, choice, reason.as_deref(), *json), *json)
        }
        ApprovalsCommand::Watch { server, json } => {
            (Client::new(server, data).and_then(|client| watch(&client, *json)), *json)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) if is_json => message.print_json(),
        Err(message) => message.print(),
    }
}

fn list(server: &ServerArguments, data: &Path, status: Option<&str>, limit: u64, is_json: bool) -> Result<(), Message> {
    let client = Client::new(server, data)?;
    let status = status.map(|status| format!("&status={}", encode(status))).unwrap_or_default();
    let page = client.json("GET", &format!("/api/approvals?limit={limit}{status}"), &[], None)?;
    if is_json {
        return print(&format!("{page}\n"));
    }
    let approvals = page["approvals"].as_array().map(Vec::as_slice).unwrap_or_default();
    print(&approvals.iter().fold(String::new(), |mut text, approval| {
        let field = |name: &str| escape_invisible(approval[name].as_str().unwrap_or_default());
        let _ = writeln!(
            text,
            "{}  {:<10} {}/{}  {}",
            field("id"),
            field("status"),
            field("user"),
            field("agent"),
            truncated(&field("command"))
        );
        text
    }))
}

fn show(server: &ServerArguments, data: &Path, id: &str, is_json: bool) -> Result<(), Message> {
    let client = Client::new(server, data)?;
    let approval = client.json("GET", &approval_path(id), &[], None)?;
    if is_json {
        return print(&format!("{approval}\n"));
    }
    print(&describe(&approval, &preview(&client, id, &approval)))
}

fn answer(
    server: &ServerArguments,
    data: &Path,
    id: &str,
    choice: &Choice,
    reason: Option<&str>,
    is_json: bool,
) -> Result<(), Message> {
    let client = Client::new(server, data)?;
    if choice.remember && !is_json {
        // Printed before the answer, because the preview exists only for a pending approval.
        let approval = client.json("GET", &approval_path(id), &[], None)?;
        print(&preview(&client, id, &approval))?;
    }
    let body = json!({ "approved": choice.allow || choice.remember, "remember": choice.remember, "reason": reason });
    let approval = client.json("POST", &approval_path(id), &[], Some(&body))?;
    print(&if is_json { format!("{approval}\n") } else { status_line(&approval) })
}

/// Shows the entries that `remember` would add and their effect on past commands. Empty if the approval
/// is not pending or has nothing to remember.
pub(crate) fn preview(client: &Client, id: &str, approval: &Value) -> String {
    let is_open = approval["status"] == "pending" && approval["kind"] != "risk";
    // Fails if the approval was answered meanwhile.
    let found = is_open.then(|| client.json("GET", &format!("{}/preview", approval_path(id)), &[], None));
    found.and_then(Result::ok).map(|found| preview_text(&found)).unwrap_or_default()
}

fn preview_text(preview: &Value) -> String {
    let mut text = String::new();
    for entry in preview["entries"].as_array().into_iter().flatten() {
        let field = |name: &str| escape_invisible(entry[name].as_str().unwrap_or_default());
        let scope = match field("scope") {
            all if all == "global" => "all users".to_owned(),
            one => one.replacen("user:", "user ", 1),
        };
        let _ = writeln!(text, "{:<10} adds {} for {scope}", "remember", field("path"));
        if entry["warning"].is_string() {
            let _ = writeln!(text, "{:<10} {}", "warning", field("warning"));
        }
    }
    let count = |name: &str| preview["execs"][name].as_u64().unwrap_or_default();
    if count("looked_at") > 0 {
        let _ = writeln!(
            text,
            "{:<10} {} of the last {} commands would not ask again; {} would",
            "effect",
            count("would_allow"),
            count("looked_at"),
            count("would_still_ask")
        );
    }
    text
}

/// The path of an approval in the API.
pub(crate) fn approval_path(id: &str) -> String {
    format!("/api/approvals/{}", encode(id))
}

pub(crate) fn status_line(approval: &Value) -> String {
    let field = |name: &str| escape_invisible(approval[name].as_str().unwrap_or_default());
    format!("{} {}\n", field("id"), field("status"))
}

/// All fields of an approval as text, followed by its preview. Without a preview, the paths that
/// `remember` adds are listed.
pub(crate) fn describe(approval: &Value, preview: &str) -> String {
    let mut text = String::new();
    let field = |name: &str| escape_invisible(approval[name].as_str().unwrap_or_default());
    let list = |name: &str| {
        let all = approval[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.map(escape_invisible).collect::<Vec<_>>().join(NEXT_ROW)
    };
    let rows = [
        ("approval", format!("{}  {}, risk {}", field("id"), field("status"), field("risk_level"))),
        (
            "exec",
            format!("{}  {}/{}, session {}", field("exec_id"), field("user"), field("agent"), field("session_id")),
        ),
        ("command", field("command")),
        ("code", lines(approval["code"].as_str().unwrap_or_default())),
        ("findings", list("patterns")),
        ("blocked", list("blocked_paths")),
        ("remember", if preview.is_empty() { list("requested_paths") } else { String::new() }),
        ("covers", covered(approval)),
        ("uncovered", not_covered(approval)),
        ("answered", field("answered_by")),
        ("reason", field("reason")),
    ];
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(text, "{name:<10} {value}");
    }
    text + preview
}

/// The files whose content the approval covers, with the text of scripts.
fn covered(approval: &Value) -> String {
    let files: Vec<CoveredFile> = serde_json::from_value(approval["covered_files"].clone()).unwrap_or_default();
    let mut rows = Vec::new();
    for file in files {
        let kept = if file.pinned { "pinned" } else { "checked, not pinned" };
        rows.push(format!(
            "{}  {} bytes, sha256 {}, {kept}",
            escape_invisible(&file.path),
            file.size,
            escape_invisible(&file.sha256)
        ));
        if let Some(script) = file.script {
            rows.extend(script.text.lines().map(|line| format!("  | {}", escape_invisible(line))));
            rows.extend((!script.is_whole).then(|| "  (truncated; the approval covers the whole file)".to_owned()));
        }
    }
    rows.join(NEXT_ROW)
}

fn not_covered(approval: &Value) -> String {
    let files: Vec<UncoveredFile> = serde_json::from_value(approval["not_covered"].clone()).unwrap_or_default();
    let rows: Vec<_> =
        files.iter().map(|file| format!("{}  {}", escape_invisible(&file.path), file.why.message())).collect();
    rows.join(NEXT_ROW)
}

/// Escapes and indents each line, so that no line of the text looks like a field.
fn lines(text: &str) -> String {
    text.lines().map(escape_invisible).collect::<Vec<_>>().join(NEXT_ROW)
}

fn truncated(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_agents_is_escaped() {
        let approval = json!({
            "id": "a_1", "status": "pending", "risk_level": "low", "user": "u", "agent": "a", "session_id": "s",
            "exec_id": "e_1", "command": "cat /x\u{1b}[2J\n\u{202e}", "blocked_paths": ["/x\u{7}", "/y"],
            "requested_paths": ["/"],
        });
        let text = describe(&approval, "");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text:?}");
        assert!(text.contains("\nblocked    /x\\u{7}\n           /y\nremember   /\n"), "{text:?}");
        assert!(!text.contains("reason"), "{text:?}");
        let code = json!({ "code": "a\r\nanswered   owner\u{1b}", "patterns": ["x (line 1): y"] });
        let text = describe(&code, "");
        assert!(
            text.contains("\ncode       a\n           answered   owner\\u{1b}\nfindings   x (line 1): y\n"),
            "{text:?}"
        );
    }

    #[test]
    fn preview_is_escaped() {
        let preview = json!({
            "entries": [{ "path": "/etc\u{1b}", "scope": "global", "warning": "Think." },
                { "path": "/srv", "scope": "user:u", "warning": null }],
            "execs": { "looked_at": 9, "would_allow": 2, "would_still_ask": 1 },
        });
        let expected = "remember   adds /etc\\u{1b} for all users\nwarning    Think.\nremember   adds /srv for user u\n\
                        effect     2 of the last 9 commands would not ask again; 1 would\n";
        assert_eq!(preview_text(&preview), expected);
        let approval = json!({ "command": "ls", "requested_paths": ["/srv"] });
        let text = describe(&approval, expected);
        assert!(text.ends_with(expected) && text.matches("/srv").count() == 1, "{text:?}");
    }

    #[test]
    fn id_is_one_segment_of_the_path() {
        let rest = approval_path("../tokens?x#y");
        let rest = rest.strip_prefix("/api/approvals/").unwrap();
        assert!(!rest.contains(['/', '?', '#']), "{rest}");
    }
}
