//! `ringwall audit verify|tail|export` and `ringwall backup`: the record, read where it lies.
//!
//! For whoever may read the database's file anyway: no server is asked, and one that runs is not disturbed. A chain that
//! does not hold is told on standard output and by exit code 1.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};
use record::{Digest, Store, Verification};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::config::{self, DatabaseOverride};
use crate::message::Message;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Read the whole chain and say whether anything in it was changed
    Verify {
        #[command(flatten)]
        database: DatabaseOverride,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
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
        AuditCommand::Verify { database, json } => with_store(data, &database, async |store| verify(store, json).await),
        AuditCommand::Tail { database, lines } => with_store(data, &database, async |store| {
            // Entries are numbered without a gap.
            let head = store.audit_head().await?.seq;
            let first = head.saturating_sub(i64::try_from(lines).unwrap_or(i64::MAX)).saturating_add(1);
            export(store, first.max(0), lines).await
        }),
        AuditCommand::Export { database, from } => {
            with_store(data, &database, async |store| export(store, from, u64::MAX).await)
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
    with_store(data, database, async |store| {
        store.backup(&file).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Opens the database that is there; a verb that only reads makes none.
pub(crate) fn with_store(
    data: &Path,
    database: &DatabaseOverride,
    work: impl AsyncFnOnce(&Store) -> Result<ExitCode, Message>,
) -> Result<ExitCode, Message> {
    let database = config::database(data, database)?;
    if let record::Database::Sqlite(path) = &database
        && !path.exists()
    {
        return Err(Message::new(format!("{}: there is no database", path.display()))
            .with_hint("name the server's data directory with --data DIR"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Message::new(format!("could not begin: {error}")))?;
    runtime.block_on(async {
        let store = Store::open(database).await?;
        let outcome = work(&store).await;
        store.close().await;
        outcome
    })
}

async fn verify(store: &Store, as_json: bool) -> Result<ExitCode, Message> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("verifying [{bar:30}] {pos} of {len}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let found = store
        .verify(|progress| {
            bar.set_length(progress.of);
            bar.set_position(progress.checked);
        })
        .await;
    bar.finish_and_clear();
    let found = found?;
    print(&if as_json { format!("{}\n", json!(VerificationReport::from(&found))) } else { words(&found) })?;
    Ok(if found.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What was found, for programs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VerificationReport {
    intact: bool,
    /// How many entries were read
    checked: u64,
    /// The newest entry; compare it with one that was kept elsewhere
    head: Head,
    findings: Vec<String>,
    /// How many more findings there were
    further: u64,
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
            findings: found.findings.iter().map(ToString::to_string).collect(),
            further: found.further,
        }
    }
}

fn words(found: &Verification) -> String {
    if found.is_intact() {
        return format!(
            "intact: {} entries, the newest is {} with hash {}\n",
            found.checked, found.head.seq, found.head.hash
        );
    }
    let mut text: String = found.findings.iter().map(|finding| format!("{finding}\n")).collect();
    if found.further > 0 {
        text.push_str(&format!("and {} more\n", found.further));
    }
    text
}

/// A reader that has seen enough (`| head`) is told nothing more.
pub(crate) fn print(text: &str) -> Result<(), Message> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| Message::io(format!("could not write to standard output: {error}"))),
    }
}
