//! `ringwall audit verify|head|tail|export` and `ringwall backup`: read the record from its database, without a server.
//!
//! A running server is not disturbed. `verify` prints what it found on standard output and exits with 1 if anything in
//! the record was changed.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use ringwall_record::{Digest, Link, Store, Verification};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::cli::message::Message;
use crate::server::{config, config::DatabaseOverride};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Read the whole record and say whether anything in it was changed
    Verify {
        #[command(flatten)]
        database: DatabaseOverride,
        /// A head that `ringwall audit head` printed earlier; the chain must contain it
        #[arg(long, value_name = "SEQ:HASH", value_parser = parse_head)]
        head: Option<Link>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the newest entry as SEQ:HASH, to be stored elsewhere for `verify --head`
    Head {
        #[command(flatten)]
        database: DatabaseOverride,
    },
    /// The newest entries, as lines of JSON
    Tail {
        #[command(flatten)]
        database: DatabaseOverride,
        /// How many
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: u64,
    },
    /// All entries, as lines of JSON
    Export {
        #[command(flatten)]
        database: DatabaseOverride,
        /// The number of the first entry
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
            // Entries are numbered without a gap.
            let head = store.audit_head().await?.seq;
            let first = head.saturating_sub(i64::try_from(lines).unwrap_or(i64::MAX)).saturating_add(1);
            export(store, first.max(0), lines).await
        }),
        AuditCommand::Export { database, from } => {
            with_store(data, &database, Access::Read, async |store| export(store, from, u64::MAX).await)
        }
    }
}

/// Those from this number on, and so many at most: others may be written meanwhile.
async fn export(store: &Store, from: i64, most: u64) -> Result<ExitCode, Message> {
    let mut lines = std::pin::pin!(store.export(from).take(usize::try_from(most).unwrap_or(usize::MAX)));
    while let Some(line) = lines.next().await {
        print(&line?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A copy of the whole record in a file that is not there yet.
pub(crate) fn back_up(file: &Path, database: &DatabaseOverride, data: &Path) -> Result<ExitCode, Message> {
    let file: PathBuf =
        std::path::absolute(file).map_err(|error| Message::new(format!("{}: {error}", file.display())))?;
    with_store(data, database, Access::Read, async |store| {
        store.backup(&file).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// What a verb does with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Needs no key. With one, `verify` checks the head's signature.
    Read,
    /// Signs the head, so it needs the data directory's key.
    Write,
}

/// `SEQ:HASH`, as `ringwall audit head` prints it.
pub(crate) fn parse_head(text: &str) -> Result<Link, String> {
    let parsed = text.split_once(':').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash.parse().ok()?)));
    let (seq, hash) = parsed.ok_or("write it as `ringwall audit head` prints it: a number, a colon, 64 digits")?;
    Ok(Link { seq, hash })
}

/// Opens the database that is there; a verb that only reads makes none.
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
        return Err(Message::new(format!("{}: there is no database", path.display()))
            .with_hint("name the server's data directory with --data DIR"));
    }
    let key = match access {
        // A copy for an auditor has no key, or one that the auditor may not read; the result says what was not checked.
        Access::Read => ringwall_service::head_key(data).unwrap_or_default(),
        Access::Write => Some(ringwall_service::ensure_head_key(data)?),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Message::new(format!("could not begin: {error}")))?;
    runtime.block_on(async {
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
    let found = store
        .verify_with(head, |progress| {
            bar.set_length(progress.of);
            bar.set_position(progress.checked);
        })
        .await;
    bar.finish_and_clear();
    let found = found?;
    print(&if as_json { format!("{}\n", json!(VerificationReport::from(&found))) } else { words(&found) })?;
    Ok(if found.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result of a verification.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VerificationReport {
    intact: bool,
    /// How many entries were read
    checked: u64,
    /// The newest entry; compare it with one that was kept elsewhere
    head: Head,
    /// `valid`; `not_checked` without the data directory's key; `missing` or `invalid`, which is also a finding
    head_signature: &'static str,
    findings: Vec<String>,
    /// How many more findings there were
    further: u64,
    /// What the reader should know and is no violation
    notes: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Head {
    seq: i64,
    hash: Digest,
}

impl From<&Verification> for VerificationReport {
    fn from(found: &Verification) -> Self {
        Self {
            intact: found.is_intact(),
            checked: found.checked,
            head: Head { seq: found.head.seq, hash: found.head.hash },
            head_signature: found.signature.as_str(),
            findings: found.findings.iter().map(ToString::to_string).collect(),
            further: found.further,
            notes: found.notes.iter().map(ToString::to_string).collect(),
        }
    }
}

fn words(found: &Verification) -> String {
    let notes: String = found.notes.iter().map(|note| format!("note: {note}\n")).collect();
    if found.is_intact() {
        return format!(
            "intact: {} entries, the newest is {} with hash {}\n{notes}",
            found.checked, found.head.seq, found.head.hash
        );
    }
    let mut text: String = found.findings.iter().map(|finding| format!("{finding}\n")).collect();
    if found.further > 0 {
        text.push_str(&format!("and {} more\n", found.further));
    }
    text + &notes
}

/// A reader that has seen enough (`| head`) is told nothing more.
pub(crate) fn print(text: &str) -> Result<(), Message> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| Message::io(format!("could not write to standard output: {error}"))),
    }
}
