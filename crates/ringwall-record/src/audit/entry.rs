//! Entries of the audit chain.
//!
//! The hash of an entry covers each of its columns and the hash of the entry before it. Changing,
//! removing or moving an entry therefore means rewriting all later ones up to the head, which is
//! stored apart and signed ([`crate::HeadKey`]).

use ringwall_ids::{AgentId, UserId};
use serde::Serialize as _;
use serde_json::Value as Json;

use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, Value, check_indexed};
use crate::digest::Digest;
use crate::error::Error;
use crate::timestamp::Timestamp;

pub(crate) const COLUMNS: &str = "seq, at, actor, action, subject, user_id, agent_id, detail, digest, previous, hash";

/// An event to append to the chain.
#[derive(Debug, Clone)]
pub struct Event {
    pub at: Timestamp,
    /// The id of a token, or a part of the program.
    pub actor: String,
    /// `noun.verb`, for example `token.created`.
    pub action: String,
    /// The id of the object of the action.
    pub subject: String,
    pub user_id: Option<UserId>,
    pub agent_id: Option<AgentId>,
    pub detail: Json,
}

/// The author of a change.
#[derive(Debug, Clone)]
pub struct Author {
    /// The id of a token, or a part of the program.
    pub by: String,
    /// The origin of the request, as JSON; stored in the audit entry only. Null if there is none.
    pub from: Json,
}

impl Author {
    pub fn new(by: impl Into<String>) -> Self {
        Self { by: by.into(), from: Json::Null }
    }
}

impl Event {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_indexed("actor", &self.actor)?;
        check_indexed("action", &self.action)?;
        check_indexed("subject", &self.subject)
    }
}

/// One stored entry. Serialised, `detail` is JSON instead of a string that contains JSON.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    pub seq: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    /// JSON as stored, because the hash covers the exact text.
    #[serde(serialize_with = "as_json")]
    pub detail: String,
    /// The digest of the row that the entry is about. In entries about approvals and browser
    /// actions, the digest of the action.
    pub digest: Option<Digest>,
    pub previous: Digest,
    pub hash: Digest,
}

/// Number and hash of an entry, which the next entry follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub seq: i64,
    pub hash: Digest,
}

/// An entry without number and hash.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) event: Event,
    pub(crate) digest: Option<Digest>,
}

impl Draft {
    /// An entry without user, agent and digest. The parameters are in the order of the columns.
    pub(crate) fn new(at: Timestamp, actor: &str, action: &str, subject: impl ToString, detail: Json) -> Self {
        let (actor, action, subject) = (actor.to_owned(), action.to_owned(), subject.to_string());
        let event = Event { at, actor, action, subject, user_id: None, agent_id: None, detail };
        Self { event, digest: None }
    }

    pub(crate) fn owned_by(mut self, user_id: Option<&UserId>, agent_id: Option<&AgentId>) -> Self {
        (self.event.user_id, self.event.agent_id) = (user_id.cloned(), agent_id.cloned());
        self
    }

    pub(crate) fn with_digest(self, digest: Option<Digest>) -> Self {
        Self { digest, ..self }
    }

    pub(crate) fn after(self, head: Link) -> Entry {
        let Event { at, actor, action, subject, user_id, agent_id, detail } = self.event;
        let mut entry = Entry {
            seq: head.seq + 1,
            at,
            actor,
            action,
            subject,
            user_id: user_id.map(|user| user.to_string()),
            agent_id: agent_id.map(|agent| agent.to_string()),
            detail: detail.to_string(),
            digest: self.digest,
            previous: head.hash,
            hash: Digest::ZERO,
        };
        entry.hash = entry.computed_hash();
        entry
    }
}

impl Entry {
    pub(crate) fn link(&self) -> Link {
        Link { seq: self.seq, hash: self.hash }
    }

    /// Every column but the hash itself, in the order of [`COLUMNS`].
    fn fields(&self) -> [Value; 10] {
        [
            self.seq.into(),
            self.at.into(),
            self.actor.as_str().into(),
            self.action.as_str().into(),
            self.subject.as_str().into(),
            self.user_id.as_deref().into(),
            self.agent_id.as_deref().into(),
            self.detail.as_str().into(),
            self.digest.into(),
            self.previous.into(),
        ]
    }

    pub(crate) fn computed_hash(&self) -> Digest {
        Digest::of_fields("ringwall audit entry 1", &self.fields())
    }

    pub(crate) fn insertion(entries: &[Entry]) -> Statement {
        let mut statement = Statement::new("append to the audit chain", "");
        let mut rows = Vec::new();
        for entry in entries {
            let values = entry.fields().into_iter().chain([entry.hash.into()]);
            let placeholders: Vec<String> = values.map(|value| statement.placeholder(value)).collect();
            rows.push(format!("({}, 0)", placeholders.join(", ")));
        }
        statement.text = format!("INSERT INTO audit ({COLUMNS}, filed) VALUES {}", rows.join(", ")).into();
        statement
    }

    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        row.read("audit", "seq", |row| {
            Ok(Self {
                seq: row.get("seq")?,
                at: Timestamp::from_milliseconds(row.get("at")?),
                actor: row.get("actor")?,
                action: row.get("action")?,
                subject: row.get("subject")?,
                user_id: row.get("user_id")?,
                agent_id: row.get("agent_id")?,
                detail: row.get("detail")?,
                digest: read_optional_digest(row, "digest")?,
                previous: read_digest(row, "previous")?,
                hash: read_digest(row, "hash")?,
            })
        })
    }
}

fn as_json<S: serde::Serializer>(detail: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<Json>(detail) {
        Ok(detail) => detail.serialize(serializer),
        // A tampered detail may be invalid JSON; show it as text.
        Err(_) => serializer.serialize_str(detail),
    }
}

impl Link {
    /// Reads the only row of `audit_head` or `audit_checkpoint`. Migrations insert it, so a missing
    /// row is corruption.
    pub(crate) fn read(row: Option<&Row>, table: &'static str) -> Result<Self, Error> {
        let Some(row) = row else {
            return Err(Error::CorruptRow {
                table,
                key: "1".to_owned(),
                column: "seq",
                source: std::sync::Arc::new(sqlx::Error::RowNotFound),
            });
        };
        row.read(table, "seq", |row| Ok(Self { seq: row.get("seq")?, hash: read_digest(row, "hash")? }))
    }
}

pub(crate) fn read_digest(row: &Row, column: &'static str) -> Result<Digest, BadColumn> {
    let bytes: Vec<u8> = row.get(column)?;
    to_digest(column, bytes)
}

pub(crate) fn read_optional_digest(row: &Row, column: &'static str) -> Result<Option<Digest>, BadColumn> {
    let bytes: Option<Vec<u8>> = row.get(column)?;
    bytes.map(|bytes| to_digest(column, bytes)).transpose()
}

fn to_digest(column: &'static str, bytes: Vec<u8>) -> Result<Digest, BadColumn> {
    let length = bytes.len();
    let wrong = |_| BadColumn::new(column, std::io::Error::other(format!("a digest has 32 bytes, not {length}")));
    bytes.try_into().map(Digest::from_bytes).map_err(wrong)
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::head::HeadKey;

    pub(crate) fn test_key() -> HeadKey {
        HeadKey::new([7; 32])
    }

    /// An event with this number as its time and subject.
    pub(crate) fn event(number: i64) -> Event {
        Event {
            at: Timestamp::from_milliseconds(number),
            actor: "test".to_owned(),
            action: "test.made".to_owned(),
            subject: number.to_string(),
            user_id: None,
            agent_id: None,
            detail: json!({}),
        }
    }
}
