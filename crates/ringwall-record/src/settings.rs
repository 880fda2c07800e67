//! The settings document, with all its versions.
//!
//! A save names the version that it changes, so that it cannot overwrite a version its author has
//! not seen. The service defines the content. The audit entry contains the version and the digest
//! of its row.

use serde_json::{Value as Json, json};

use crate::audit::entry::{Draft, Event};
use crate::audit::rows::SETTINGS;
use crate::db::driver::BadColumn;
use crate::db::statement::{Statement, check_text};
use crate::error::Error;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;
use crate::writer::queue::Operation;

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
        self.submit(Save { document: document.to_string(), expected, at, by: by.to_owned() }).await
    }
}

struct Save {
    document: String,
    expected: i64,
    at: Timestamp,
    by: String,
}

impl Operation for Save {
    type Answer = Saved;

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<Saved, Error> {
        let query =
            Statement::new("read the settings' version", "SELECT coalesce(max(version), 0) AS version FROM settings");
        let row = ledger.row(query).await?;
        let current = row.map_or(Ok(0), |row| row.read("settings", "version", |row| row.get("version")))?;
        if current != self.expected {
            return Ok(Saved::Conflict { current });
        }
        let version = current + 1;
        let text = "INSERT INTO settings (version, document, saved_at, saved_by) VALUES ($1, $2, $3, $4)";
        let insertion = Statement::new("save the settings", text)
            .bind(version)
            .bind(self.document.as_str())
            .bind(self.at)
            .bind(self.by.as_str());
        ledger.execute(insertion).await?;
        let digest = SETTINGS.digest(ledger, [version.into()]).await?;
        let event = Event {
            at: self.at,
            actor: self.by.clone(),
            action: "settings.changed".to_owned(),
            subject: "settings".to_owned(),
            user_id: None,
            agent_id: None,
            detail: json!({ "version": version }),
        };
        ledger.append(Draft { event, digest });
        Ok(Saved::Recorded { version })
    }
}
