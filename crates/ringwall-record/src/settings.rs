//! The settings document, with all its versions.
//!
//! A save names the version that it changes, so that it cannot overwrite a version its author has
//! not seen. The service defines the content. The audit entry contains the version and the digest
//! of its row.

use serde_json::{Value as Json, json};

use crate::audit::entry::Draft;
use crate::audit::rows::SETTINGS;
use crate::db::driver::BadColumn;
use crate::db::statement::{Statement, check_text};
use crate::error::Error;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// 1 for the first version, then increasing by 1.
    pub version: i64,
    pub document: Json,
    pub saved_at: Timestamp,
    pub saved_by: String,
}

/// The answer to [`Store::save_settings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    Recorded {
        version: i64,
    },
    /// Another version is current; nothing was changed. 0 if no settings were saved yet.
    Conflict {
        current: i64,
    },
}

impl Store {
    /// The current version; `None` if no settings were saved yet.
    pub async fn settings(&self) -> Result<Option<Settings>, Error> {
        let text = "SELECT version, document, saved_at, saved_by FROM settings ORDER BY version DESC LIMIT 1";
        let row = self.readers().row(Statement::new("read the settings", text)).await?;
        let settings = row.map(|row| {
            row.read("settings", "version", |row| {
                let document: String = row.get("document")?;
                Ok(Settings {
                    version: row.get("version")?,
                    document: serde_json::from_str(&document).map_err(|error| BadColumn::new("document", error))?,
                    saved_at: Timestamp::from_milliseconds(row.get("saved_at")?),
                    saved_by: row.get("saved_by")?,
                })
            })
        });
        settings.transpose()
    }

    /// Saves a new version if `expected` is the current one; 0 expects that there is none yet.
    pub async fn save_settings(&self, document: &Json, expected: i64, at: Timestamp, by: &str) -> Result<Saved, Error> {
        check_text("saved_by", by)?;
        let (document, by) = (document.to_string(), by.to_owned());
        self.submit(async move |ledger| save(ledger, &document, expected, at, &by).await).await
    }
}

async fn save(ledger: &mut Ledger<'_>, document: &str, expected: i64, at: Timestamp, by: &str) -> Result<Saved, Error> {
    let query =
        Statement::new("read the settings' version", "SELECT coalesce(max(version), 0) AS version FROM settings");
    let row = ledger.row(query).await?;
    let current = row.map_or(Ok(0), |row| row.read("settings", "version", |row| row.get("version")))?;
    if current != expected {
        return Ok(Saved::Conflict { current });
    }
    let version = current + 1;
    let text = "INSERT INTO settings (version, document, saved_at, saved_by) VALUES ($1, $2, $3, $4)";
    let insertion = Statement::new("save the settings", text).bind(version).bind(document).bind(at).bind(by);
    ledger.execute(insertion).await?;
    let digest = SETTINGS.digest(ledger, [version.into()]).await?;
    let draft = Draft::new(at, by, "settings.changed", "settings", json!({ "version": version }));
    ledger.append(draft.with_digest(digest));
    Ok(Saved::Recorded { version })
}
