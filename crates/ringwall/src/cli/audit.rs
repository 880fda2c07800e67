//! `ringwall audit verify|head|tail|export` and `ringwall backup`: reads the record from its database,
//! without a server or beside a running one.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use ringwall_record::{Link, Store, Verification};
use serde_json::json;

use crate::message::{Message, print};
use crate::runtime;
use crate::server::{config, config::DatabaseOverride};
use crate::views::{VerificationReport, parse_head};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check the whole record for changes (exit code 1 if it was changed)
    Verify {
        #[command(flatten)]
        database: DatabaseOverride,
        /// Head that `ringwall audit head` printed earlier; the chain must contain it
        #[arg(long, value_name = "SEQ:HASH", value_parser = parse_head)]
        head: Option<Link>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the newest entry as SEQ:HASH, to store it elsewhere for `verify --head`
    Head {
        #[command(flatten)]
        database: DatabaseOverride,
    },
    /// Print the newest entries as lines of JSON
    Tail {
        #[command(flatten)]
        database: DatabaseOverride,
        /// Number of entries
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: u64,
    },
    /// Print all entries as lines of JSON
    Export {
        #[command(flatten)]
        database: DatabaseOverride,
        /// Number of the first entry
        #[arg(long, default_value_t = 0)]
        from: i64,
    },
}

pub(crate) fn run(command: AuditCommand, data: &Path) -> Result<ExitCode, Message> {
    match command {
        AuditCommand::Verify { database, head, json } => {
            with_store(data, &database, Access::Read, async |store| verify(store, head, json).await)
        }
        AuditCommand::Head { database } => with_store(data, &database, Access::Read, async |store| {
            let Link { seq, hash } = store.audit_head().await?;
            print(&format!("{seq}:{hash}\n"))?;
            Ok(ExitCode::SUCCESS)
        }),
        AuditCommand::Tail { database, lines } => with_store(data, &database, Access::Read, async |store| {
            // Sequence numbers have no gaps.
            let head = store.audit_head().await?.seq;
            let first = head.saturating_sub(i64::try_from(lines).unwrap_or(i64::MAX)).saturating_add(1);
            export(store, first.max(0), lines).await
        }),
        AuditCommand::Export { database, from } => {
            with_store(data, &database, Access::Read, async |store| export(store, from, u64::MAX).await)
        }
    }
}

/// Prints entries from this number on. `most` is a limit because a running server may add entries.
async fn export(store: &Store, from: i64, most: u64) -> Result<ExitCode, Message> {
    let mut lines = std::pin::pin!(store.export(from).take(usize::try_from(most).unwrap_or(usize::MAX)));
    while let Some(line) = lines.next().await {
        print(&line?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies the whole record to a new file.
pub(crate) fn backup(file: &Path, database: &DatabaseOverride, data: &Path) -> Result<ExitCode, Message> {
    let file: PathBuf =
        std::path::absolute(file).map_err(|error| Message::new(format!("{}: {error}", file.display())))?;
    with_store(data, database, Access::Read, async |store| {
        store.backup(&file).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// How a subcommand uses the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Needs no key. `verify` checks the head's signature if the data directory has one.
    Read,
    /// Signs the head with the data directory's key.
    Write,
}

/// Opens the existing database and runs `work`. Fails instead of creating a SQLite database.
pub(crate) fn with_store(
    data: &Path,
    database: &DatabaseOverride,
    access: Access,
    work: impl AsyncFnOnce(&Store) -> Result<ExitCode, Message>,
) -> Result<ExitCode, Message> {
    let database = config::database(data, database)?;
    if let ringwall_record::Database::Sqlite(path) = &database
        && !path.exists()
    {
        return Err(Message::new(format!("{}: the database does not exist", path.display()))
            .with_hint("choose the server's data directory with --data DIR"));
    }
    let key = match access {
        // Without a readable key, as in a copy for an auditor, the result says that the signature was not checked.
        Access::Read => ringwall_service::head_key(data).unwrap_or_default(),
        Access::Write => Some(ringwall_service::ensure_head_key(data)?),
    };
    runtime::current_thread()?.block_on(async {
        let store = Store::open(database, key).await?;
        let checked = match access {
            Access::Read => Ok(()),
            Access::Write => store.require_own_head().await,
        };
        let outcome = match checked {
            Ok(()) => work(&store).await,
            Err(error) => Err(error.into()),
        };
        store.close().await;
        outcome
    })
}

async fn verify(store: &Store, head: Option<Link>, as_json: bool) -> Result<ExitCode, Message> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("verifying [{bar:30}] {pos} of {len}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let verification = store
        .verify_with(head, |progress| {
            bar.set_length(progress.of);
            bar.set_position(progress.checked);
        })
        .await;
    bar.finish_and_clear();
    let verification = verification?;
    print(&if as_json {
        format!("{}\n", json!(VerificationReport::from(&verification)))
    } else {
        summary(&verification)
    })?;
    Ok(if verification.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summary(verification: &Verification) -> String {
    let notes: String = verification.notes.iter().map(|note| format!("note: {note}\n")).collect();
    if verification.is_intact() {
        return format!(
            "intact: {} entries, the newest is {} with hash {}\n{notes}",
            verification.checked, verification.head.seq, verification.head.hash
        );
    }
    let mut text: String = verification.findings.iter().map(|finding| format!("{finding}\n")).collect();
    if verification.further > 0 {
        text.push_str(&format!("and {} more\n", verification.further));
    }
    text + &notes
}
