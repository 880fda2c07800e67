//! `ringwall approvals list|show|answer|watch`: lists and answers approvals of a server.
//!
//! Text that an agent can influence is escaped ([`escape_invisible`]) before it is printed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ringwall_record::{CoveredFile, UncoveredFile};
use serde_json::{Value, json};

use crate::client::encode;
use crate::client::{Client, ServerArguments};
use crate::message::{Message, escape_invisible, print};

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
    let (ApprovalsCommand::List { server, json, .. }
    | ApprovalsCommand::Show { server, json, .. }
    | ApprovalsCommand::Answer { server, json, .. }
    | ApprovalsCommand::Watch { server, json }) = command;
    let done = Client::new(server, data).and_then(|client| match command {
        ApprovalsCommand::List { status, limit, .. } => list(&client, status.as_deref(), *limit, *json),
        ApprovalsCommand::Show { id, .. } => show(&client, id, *json),
        ApprovalsCommand::Answer { id, choice, reason, .. } => answer(&client, id, choice, reason.as_deref(), *json),
        ApprovalsCommand::Watch { .. } => watch(&client, *json),
    });
    done.map_or_else(|message| message.print_as(*json), |()| ExitCode::SUCCESS)
}

fn list(client: &Client, status: Option<&str>, limit: u64, is_json: bool) -> Result<(), Message> {
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

fn show(client: &Client, id: &str, is_json: bool) -> Result<(), Message> {
    let approval = client.json("GET", &approval_path(id), &[], None)?;
    if is_json {
        return print(&format!("{approval}\n"));
    }
    print(&describe(&approval, &preview(client, id, &approval)))
}

fn answer(client: &Client, id: &str, choice: &Choice, reason: Option<&str>, is_json: bool) -> Result<(), Message> {
    if choice.remember && !is_json {
        // Printed before the answer, because the preview exists only for a pending approval.
        let approval = client.json("GET", &approval_path(id), &[], None)?;
        print(&preview(client, id, &approval))?;
    }
    let body = json!({ "approved": choice.allow || choice.remember, "remember": choice.remember, "reason": reason });
    let approval = client.json("POST", &approval_path(id), &[], Some(&body))?;
    print(&if is_json { format!("{approval}\n") } else { status_line(&approval) })
}

/// Shows the entries that `remember` would add and their effect on past commands. Empty if the approval
/// is not pending or has nothing to remember.
fn preview(client: &Client, id: &str, approval: &Value) -> String {
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
fn approval_path(id: &str) -> String {
    format!("/api/approvals/{}", encode(id))
}

fn status_line(approval: &Value) -> String {
    let field = |name: &str| escape_invisible(approval[name].as_str().unwrap_or_default());
    format!("{} {}\n", field("id"), field("status"))
}

/// All fields of an approval as text, followed by its preview. Without a preview, the paths that
/// `remember` adds are listed.
fn describe(approval: &Value, preview: &str) -> String {
    let mut text = String::new();
    let field = |name: &str| escape_invisible(approval[name].as_str().unwrap_or_default());
    let list = |name: &str| lines(approval[name].as_array().into_iter().flatten().filter_map(Value::as_str));
    let rows = [
        ("approval", format!("{}  {}, risk {}", field("id"), field("status"), field("risk_level"))),
        (
            "exec",
            format!("{}  {}/{}, session {}", field("exec_id"), field("user"), field("agent"), field("session_id")),
        ),
        ("command", field("command")),
        ("code", lines(approval["code"].as_str().unwrap_or_default().lines())),
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
fn lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(escape_invisible).collect::<Vec<_>>().join(NEXT_ROW)
}

fn truncated(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

const POLL_PERIOD: Duration = Duration::from_secs(1);
/// Consecutive failed polls before the command exits with the error.
const MAX_FAILED_POLLS: u32 = 30;

/// A line that the user of `watch` typed.
#[derive(Debug, PartialEq, Eq)]
enum Input {
    Answer {
        approved: bool,
        remember: bool,
        reason: Option<String>,
    },
    /// Leave it open.
    Skip,
    Unclear,
}

/// Shows each new approval and prompts for an answer. Polls the list every second instead of using a
/// WebSocket, which works for every role and through every proxy. If an approval was answered
/// elsewhere, the answer given here is an error that is printed.
fn watch(client: &Client, is_json: bool) -> Result<(), Message> {
    let mut shown: BTreeMap<String, Value> = BTreeMap::new();
    let (mut failures, mut has_connected) = (0, false);
    loop {
        let pending = match all_pending(client) {
            Ok(pending) => pending,
            // A wrong address or token is reported at once. A server that answered before may be restarting.
            Err(message) if !has_connected || failures >= MAX_FAILED_POLLS => return Err(message),
            Err(_) => {
                failures += 1;
                std::thread::sleep(POLL_PERIOD);
                continue;
            }
        };
        (failures, has_connected) = (0, true);
        let resolved_ids: Vec<String> = shown.keys().filter(|id| !pending.contains_key(*id)).cloned().collect();
        for id in resolved_ids {
            shown.remove(&id);
            if is_json {
                let resolved = client.json("GET", &approval_path(&id), &[], None)?;
                print(&format!("{}\n", json!({ "type": "permission_resolved", "approval": resolved })))?;
            }
        }
        for (id, approval) in pending {
            if shown.contains_key(&id) {
                continue;
            }
            if is_json {
                print(&format!("{}\n", json!({ "type": "permission_request", "approval": approval })))?;
            } else if !ask(client, &id, &approval)? {
                return Ok(());
            }
            shown.insert(id, approval);
        }
        std::thread::sleep(POLL_PERIOD);
    }
}

/// Reads all pages of pending approvals.
fn all_pending(client: &Client) -> Result<BTreeMap<String, Value>, Message> {
    let (mut found, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = client.json("GET", &format!("/api/approvals?status=pending&limit=1000{cursor}"), &[], None)?;
        for approval in page["approvals"].as_array().into_iter().flatten() {
            found.insert(approval["id"].as_str().unwrap_or_default().to_owned(), approval.clone());
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(found),
        }
    }
}

/// Returns `false` at the end of standard input.
fn ask(client: &Client, id: &str, approval: &Value) -> Result<bool, Message> {
    print(&format!("\n{}", describe(approval, &preview(client, id, approval))))?;
    loop {
        prompt("[a]llow once, allow and [r]emember, [d]eny [reason], [s]kip: ")?;
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| Message::io(format!("could not read the answer: {error}")))? == 0 {
            return Ok(false);
        }
        match parse_input(&line) {
            Input::Unclear => {}
            Input::Skip => return Ok(true),
            Input::Answer { approved, remember, reason } => {
                let body = json!({ "approved": approved, "remember": remember, "reason": reason });
                match client.json("POST", &approval_path(id), &[], Some(&body)) {
                    Ok(answered) => print(&status_line(&answered))?,
                    // Answered elsewhere, expired, or `remember` is not allowed.
                    Err(message) => drop(message.print()),
                }
                return Ok(true);
            }
        }
    }
}

fn prompt(text: &str) -> Result<(), Message> {
    let mut stderr = std::io::stderr();
    let written = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    written.map_err(|error| Message::io(format!("could not write the prompt to standard error: {error}")))
}

/// Parses a line: a letter or a word, optionally followed by a reason.
fn parse_input(line: &str) -> Input {
    let line = line.trim();
    let (word, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    match word.to_ascii_lowercase().as_str() {
        "a" | "allow" => Input::Answer { approved: true, remember: false, reason },
        "r" | "remember" => Input::Answer { approved: true, remember: true, reason },
        "d" | "deny" => Input::Answer { approved: false, remember: false, reason },
        "s" | "skip" => Input::Skip,
        _ => Input::Unclear,
    }
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

    #[test]
    fn only_listed_words_are_answers() {
        let answer = |approved, remember, reason: Option<&str>| Input::Answer {
            approved,
            remember,
            reason: reason.map(str::to_owned),
        };
        assert_eq!(parse_input("a\n"), answer(true, false, None));
        assert_eq!(parse_input(" Remember it is mine \n"), answer(true, true, Some("it is mine")));
        assert_eq!(parse_input("d not today"), answer(false, false, Some("not today")));
        assert_eq!(parse_input("s"), Input::Skip);
        for unclear in ["", "\n", "y", "yes", "allowed", "ad"] {
            assert_eq!(parse_input(unclear), Input::Unclear, "{unclear:?}");
        }
    }
}
