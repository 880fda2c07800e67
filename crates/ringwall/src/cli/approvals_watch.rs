//! `ringwall approvals watch`: shows each new approval and prompts for an answer.
//!
//! Polls the list every second instead of using a WebSocket, which works for every role and through
//! every proxy. If an approval was answered elsewhere, the answer given here is an error that is printed.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::approvals::{approval_path, describe, preview, status_line};
use crate::cli::audit::print;
use crate::cli::client::Client;
use crate::cli::message::Message;

const POLL_PERIOD: Duration = Duration::from_secs(1);
/// Consecutive failed polls before the command exits with the error.
const MAX_FAILED_POLLS: u32 = 30;

/// A line that the user typed.
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

pub(crate) fn watch(client: &Client, is_json: bool) -> Result<(), Message> {
    let mut shown: BTreeMap<String, Value> = BTreeMap::new();
    let (mut failures, mut has_connected) = (0, false);
    loop {
        let pending = match pending(client) {
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
fn pending(client: &Client) -> Result<BTreeMap<String, Value>, Message> {
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
