//! Rows that give rights or set rules, and the entries that account for them.
//!
//! The newest entry about such a row contains a digest of the stored row, so
//! [`crate::Store::verify`] finds rows that were changed, added or removed by other programs. When
//! retention removes the entry of a row that still exists, a `*.restated` entry with the same
//! digest takes its place.

use std::collections::HashMap;

use serde_json::json;

use crate::audit::entry::{COLUMNS, Draft, Entry, Event};
use crate::db::driver::{BadColumn, Row, Snapshot};
use crate::db::statement::{Statement, Value};
use crate::digest::Digest;
use crate::error::Error;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

/// Rows per page.
const PAGE: i64 = 64;

/// Which columns of a table a digest covers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Columns that are also in `columns`, in the order in which pages are read.
    key: &'static [&'static str],
    columns: &'static [&'static str],
    /// The action of a `*.restated` entry. Absent if rows need no entry after retention removed it.
    restated: Option<&'static str>,
}

pub(crate) const TOKENS: Table = Table {
    name: "tokens",
    key: &["id"],
    columns: &[
        "id",
        "hash",
        "role",
        "user_id",
        "agent_id",
        "label",
        "created_at",
        "created_by",
        "expires_at",
        "revoked_at",
    ],
    restated: Some("token.restated"),
};

pub(crate) const SETTINGS: Table = Table {
    name: "settings",
    key: &["version"],
    columns: &["version", "document", "saved_at", "saved_by"],
    restated: Some("settings.restated"),
};

pub(crate) const SESSIONS: Table = Table {
    name: "sessions",
    key: &["user_id", "agent_id", "session_id"],
    columns: &[
        "user_id",
        "agent_id",
        "session_id",
        "confirmation",
        "callback_url",
        "security_mode",
        "user_confirmation",
        "user_security_mode",
        "ended",
        "changed_at",
        "changed_by",
    ],
    restated: Some("session.restated"),
};

pub(crate) const NET_HOSTS: Table = Table {
    name: "net_hosts",
    key: &["id"],
    columns: &["id", "user_id", "entry", "created_at", "created_by"],
    restated: Some("net.host.restated"),
};

pub(crate) const IDENTITIES: Table = Table {
    name: "identities",
    key: &["uid"],
    columns: &["user_id", "agent_id", "uid"],
    restated: Some("identity.restated"),
};

/// Operators may edit this table with SQL, so a difference is a note and no finding.
pub(crate) const SANDBOX_PATHS: Table = Table {
    name: "sandbox_paths",
    key: &["id"],
    columns: &["id", "path", "description", "enabled", "scope", "created_at", "created_by"],
    restated: Some("sandbox.path.restated"),
};

/// The columns of the question, which are fixed when the approval opens.
pub(crate) const APPROVAL_QUESTIONS: Table =
    Table { name: "approvals", key: &["id"], columns: APPROVAL_COLUMNS.split_at(17).0, restated: None };

/// The columns of the question and of the answer.
pub(crate) const APPROVALS: Table =
    Table { name: "approvals", key: &["id"], columns: &APPROVAL_COLUMNS, restated: None };

const APPROVAL_COLUMNS: [&str; 21] = [
    "id",
    "kind",
    "exec_id",
    "user_id",
    "agent_id",
    "session_id",
    "command",
    "code",
    "requested_paths",
    "blocked_paths",
    "risk_level",
    "patterns",
    "digest",
    "asked_by",
    "created_at",
    "expires_at",
    "files",
    "status",
    "answered_at",
    "answered_by",
    "reason",
];

/// The tables that verification compares as a whole.
pub(crate) const TABLES: [&Table; 6] = [&TOKENS, &SETTINGS, &SESSIONS, &NET_HOSTS, &IDENTITIES, &SANDBOX_PATHS];

/// Every action that [`RowRef::of`] knows, for SQL.
const ACTIONS: &str = "'token.created', 'token.revoked', 'token.restated', 'settings.changed', 'settings.restated', \
                       'session.changed', 'session.deleted', 'session.restated', 'net.host.allowed', \
                       'net.host.forgotten', 'net.host.restated', 'identity.allocated', 'identity.restated', \
                       'sandbox.path.added', 'sandbox.path.changed', 'sandbox.path.removed', 'sandbox.path.restated'";

/// The values of a table's key columns.
pub(crate) type Key = Vec<Value>;

/// The existence of the row after the entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    Removed,
}

/// The row that an entry is about.
#[derive(Debug)]
pub(crate) struct RowRef {
    pub(crate) table: &'static Table,
    pub(crate) key: Key,
    pub(crate) presence: Presence,
}

impl RowRef {
    /// `None` for entries about other things, and for malformed ones.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        use Presence::{Present, Removed};
        let text = |text: &str| vec![Value::from(text)];
        let number = || entry.subject.parse::<i64>().ok().map(|number| vec![Value::from(number)]);
        let (table, key, presence) = match entry.action.as_str() {
            "token.created" | "token.revoked" | "token.restated" => (&TOKENS, text(&entry.subject), Present),
            "settings.changed" | "settings.restated" => {
                let detail: serde_json::Value = serde_json::from_str(&entry.detail).ok()?;
                (&SETTINGS, vec![detail["version"].as_i64()?.into()], Present)
            }
            action @ ("session.changed" | "session.deleted" | "session.restated") => {
                let (user, agent) = (entry.user_id.as_deref()?, entry.agent_id.as_deref()?);
                let key = vec![user.into(), agent.into(), entry.subject.as_str().into()];
                // The row of a deleted session stays if it contains a rule that tightens; its entry
                // then has a digest.
                let is_removed = action == "session.deleted" && entry.digest.is_none();
                (&SESSIONS, key, if is_removed { Removed } else { Present })
            }
            "net.host.allowed" | "net.host.restated" => (&NET_HOSTS, number()?, Present),
            "net.host.forgotten" => (&NET_HOSTS, number()?, Removed),
            "identity.allocated" | "identity.restated" => (&IDENTITIES, number()?, Present),
            "sandbox.path.added" | "sandbox.path.changed" | "sandbox.path.restated" => {
                (&SANDBOX_PATHS, number()?, Present)
            }
            "sandbox.path.removed" => (&SANDBOX_PATHS, number()?, Removed),
            _ => return None,
        };
        Some(Self { table, key, presence })
    }
}

/// A row as verification needs it.
pub(crate) struct StoredRow {
    pub(crate) key: Key,
    pub(crate) digest: Digest,
}

impl Table {
    /// The digest of the row with this key as this transaction sees it, for the entry about it.
    pub(crate) async fn digest(
        &self,
        ledger: &mut Ledger<'_>,
        key: impl IntoIterator<Item = Value>,
    ) -> Result<Option<Digest>, Error> {
        let conditions: Vec<String> = (1..).zip(self.key).map(|(index, name)| format!("{name} = ${index}")).collect();
        let text = format!("SELECT {} FROM {} WHERE {}", self.columns.join(", "), self.name, conditions.join(" AND "));
        let row = ledger.row(Statement::new("read a row for its audit entry", text).bind_all(key)).await?;
        row.map(|row| self.read(&row).map(|row| row.digest)).transpose()
    }

    /// The rows after this key, in the order of their keys.
    pub(crate) fn page(&self, after: Option<&Key>) -> Statement {
        let mut statement = Statement::new("read rows to compare with the audit chain", "");
        let keys = self.key.join(", ");
        let after = after.map_or(String::new(), |key| {
            let placeholders: Vec<String> = key.iter().map(|value| statement.placeholder(value.clone())).collect();
            format!(" WHERE ({keys}) > ({})", placeholders.join(", "))
        });
        let limit = statement.placeholder(PAGE);
        statement.text =
            format!("SELECT {} FROM {}{after} ORDER BY {keys} LIMIT {limit}", self.columns.join(", "), self.name)
                .into();
        statement
    }

    pub(crate) fn read(&self, row: &Row) -> Result<StoredRow, Error> {
        row.read(self.name, self.key[0], |row| {
            let values = self.columns.iter().map(|name| row.value(name)).collect::<Result<Vec<_>, BadColumn>>()?;
            let position = |key: &&str| self.columns.iter().position(|name| name == key);
            let key = self.key.iter().filter_map(position).map(|index| values[index].clone()).collect();
            let domain = format!("ringwall row of {} 1", self.name);
            Ok(StoredRow { key, digest: Digest::of_fields(&domain, &values) })
        })
    }

    fn restatement(&self, key: &Key, digest: Digest, at: Timestamp) -> Option<Draft> {
        let text = |index: usize| match key.get(index)? {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.map(|number| number.to_string()),
            Value::Bytes(_) => None,
        };
        let (mut user_id, mut agent_id, mut detail) = (None, None, json!({}));
        let subject = if *self == SESSIONS {
            (user_id, agent_id) = (text(0)?.parse().ok(), text(1)?.parse().ok());
            text(2)?
        } else if *self == SETTINGS {
            detail = json!({ "version": text(0)?.parse::<i64>().ok()? });
            "settings".to_owned()
        } else {
            text(0)?
        };
        let (actor, action) = ("ringwall".to_owned(), self.restated?.to_owned());
        let event = Event { at, actor, action, subject, user_id, agent_id, detail };
        Some(Draft { event, digest: Some(digest) })
    }
}

/// For retention, before it removes the entries after `first` up to `last`: restates the rows whose
/// newest entry is among them. A row that differs from its entry is not restated, so that
/// verification still finds it.
pub(crate) async fn restate_removed(
    ledger: &mut Ledger<'_>,
    first: i64,
    last: i64,
    at: Timestamp,
) -> Result<(), Error> {
    let text =
        format!("SELECT {COLUMNS} FROM audit WHERE seq > $1 AND seq <= $2 AND action IN ({ACTIONS}) ORDER BY seq");
    let query = Statement::new("look for rows whose entries are to be removed", text).bind(first).bind(last);
    let mut newest: HashMap<(&'static str, Key), (i64, &'static Table, Option<Digest>)> = HashMap::new();
    for row in ledger.rows(query).await? {
        let entry = Entry::read(&row)?;
        if let Some(RowRef { table, key, presence }) = RowRef::of(&entry) {
            let digest = entry.digest.filter(|_| presence == Presence::Present);
            newest.insert((table.name, key), (entry.seq, table, digest));
        }
    }
    if newest.is_empty() {
        return Ok(());
    }
    // Skip rows with a later entry: an earlier digest would accept a row that was set back to it.
    let text = format!("SELECT {COLUMNS} FROM audit WHERE seq > $1 AND action IN ({ACTIONS})");
    for row in ledger.rows(Statement::new("look for later entries about the same rows", text).bind(last)).await? {
        if let Some(RowRef { table, key, .. }) = RowRef::of(&Entry::read(&row)?) {
            newest.remove(&(table.name, key));
        }
    }
    let mut newest: Vec<_> =
        newest.into_iter().map(|((_, key), (seq, table, digest))| (seq, table, key, digest)).collect();
    newest.sort_by_key(|(seq, ..)| *seq);
    for (_, table, key, recorded) in newest {
        let Some(recorded) = recorded else { continue };
        if table.digest(ledger, key.clone()).await? == Some(recorded)
            && let Some(draft) = table.restatement(&key, recorded, at)
        {
            ledger.append(draft);
        }
    }
    Ok(())
}

/// The newest entry's number and digest for each row that should exist. Grows with the number of
/// rows, not of entries.
#[derive(Debug, Default)]
pub(crate) struct Expected(HashMap<(&'static str, Key), (i64, Option<Digest>)>);

/// A difference between a row and the chain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The row differs from what this entry recorded.
    Altered { seq: i64 },
    /// No entry records the row.
    Unrecorded,
    /// The row that this entry recorded is missing.
    Removed { seq: i64 },
}

impl Expected {
    pub(crate) fn follow(&mut self, entry: &Entry) {
        let Some(RowRef { table, key, presence }) = RowRef::of(entry) else { return };
        match presence {
            Presence::Present => drop(self.0.insert((table.name, key), (entry.seq, entry.digest))),
            Presence::Removed => drop(self.0.remove(&(table.name, key))),
        }
    }

    /// Compares all rows of one table and reports each difference.
    pub(crate) async fn compare(
        &mut self,
        snapshot: &mut Snapshot,
        table: &'static Table,
        mut report: impl FnMut(String, Difference),
    ) -> Result<(), Error> {
        let mut after = None;
        loop {
            let rows = snapshot.rows(table.page(after.as_ref())).await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                let StoredRow { key, digest } = table.read(row)?;
                match self.0.remove(&(table.name, key.clone())) {
                    Some((_, recorded)) if recorded == Some(digest) => {}
                    Some((seq, _)) => report(key_text(&key), Difference::Altered { seq }),
                    None => report(key_text(&key), Difference::Unrecorded),
                }
                after = Some(key);
            }
        }
        let left = self.0.extract_if(|(name, _), _| *name == table.name);
        let mut left: Vec<_> = left.map(|((_, key), (seq, _))| (seq, key_text(&key))).collect();
        left.sort();
        left.into_iter().for_each(|(seq, key)| report(key, Difference::Removed { seq }));
        Ok(())
    }
}

fn key_text(key: &Key) -> String {
    let parts = key.iter().map(|value| match value {
        Value::Integer(number) => number.unwrap_or_default().to_string(),
        Value::Text(text) => text.clone().unwrap_or_default(),
        Value::Bytes(_) => String::new(),
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::Link;
    use crate::audit::entry::tests::event;

    /// Retention would remove the entry of a row without restating it if its action were missing
    /// from the SQL list.
    #[test]
    fn every_action_about_a_row_is_in_the_list_for_sql() {
        for action in ACTIONS.split(", ").map(|action| action.trim_matches('\'')) {
            let mut event = Event { action: action.to_owned(), detail: json!({ "version": 1 }), ..event(1) };
            (event.user_id, event.agent_id) = (Some("u".parse().unwrap()), Some("a".parse().unwrap()));
            let entry = Draft { event, digest: None }.after(Link { seq: 0, hash: Digest::ZERO });
            assert!(RowRef::of(&entry).is_some(), "{action}");
        }
        for table in TABLES {
            assert!(ACTIONS.contains(table.restated.unwrap()), "{}", table.name);
        }
    }

    #[test]
    fn restated_entry_is_about_the_same_row() {
        let keys: [Key; 6] = [
            vec!["t_1".into()],
            vec![3.into()],
            vec!["u".into(), "a".into(), "s".into()],
            vec![4.into()],
            vec![5.into()],
            vec![6.into()],
        ];
        for (table, key) in TABLES.into_iter().zip(keys) {
            let draft = table.restatement(&key, Digest::ZERO, Timestamp::from_milliseconds(1)).unwrap();
            let row = RowRef::of(&draft.after(Link { seq: 0, hash: Digest::ZERO })).unwrap();
            assert_eq!((row.table.name, row.key, row.presence), (table.name, key, Presence::Present));
        }
    }
}
