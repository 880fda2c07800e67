//! `ringwall gc`: deletes idle sessions, leftovers and old baseline versions on a server.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use crate::client::{Client, ServerArguments};
use crate::message::{Message, print};

#[derive(Debug, Args)]
pub(crate) struct GcArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Only show what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &GcArguments, data: &Path) -> Result<ExitCode, Message> {
    let client = Client::new(&arguments.server, data)?;
    let freed = client.json("POST", &format!("/api/gc?dry_run={}", arguments.dry_run), &[], None)?;
    print(&if arguments.json { format!("{freed}\n") } else { summary(&freed) })?;
    Ok(if freed["failed"] == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summary(freed: &Value) -> String {
    let count = |name: &str| freed[name].as_u64().unwrap_or_default();
    let counted =
        |name: &str, one: &str, many: &str| format!("{} {}", count(name), if count(name) == 1 { one } else { many });
    let verb = if freed["dry_run"] == true { "would free" } else { "freed" };
    let mut text = format!(
        "{verb} {:.1} MiB in {}: {}, {}, {}\n",
        count("bytes") as f64 / (1024.0 * 1024.0),
        counted("files", "file", "files"),
        counted("sessions", "idle session", "idle sessions"),
        counted("strays", "leftover", "leftovers"),
        counted("baseline_versions", "old baseline version", "old baseline versions"),
    );
    if count("failed") > 0 {
        let items = counted("failed", "item", "items");
        text.push_str(&format!("could not remove {items}; see the server's log\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failures_are_a_second_line() {
        let freed = json!({ "dry_run": false, "sessions": 2, "strays": 1, "baseline_versions": 0, "bytes": 3_670_016,
            "files": 12, "failed": 0 });
        assert_eq!(
            summary(&freed),
            "freed 3.5 MiB in 12 files: 2 idle sessions, 1 leftover, 0 old baseline versions\n"
        );
        let looked = json!({ "dry_run": true, "failed": 1 });
        assert_eq!(
            summary(&looked),
            "would free 0.0 MiB in 0 files: 0 idle sessions, 0 leftovers, 0 old baseline versions\n\
             could not remove 1 item; see the server's log\n"
        );
    }
}
