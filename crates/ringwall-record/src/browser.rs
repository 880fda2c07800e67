//! Records browser actions: the intent before the action, and its outcome.
//!
//! Both are audit entries with actor and session. Neither the content of a page nor typed text is
//! stored.

use ringwall_ids::ExecId;
use serde_json::{Value as Json, json};

use crate::audit::entry::Draft;
use crate::db::driver::Row;
use crate::db::statement::{Statement, check_indexed, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::{columns, columns::name};
use crate::page::Limit;
use crate::sessions::SessionKey;
use crate::store::Store;
use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

const COLUMNS: &str = "id, user_id, agent_id, session_id, kind, action, detail, actor, status, error, url, connections, \
                       started_at, ended_at";
/// Number of actions that one transaction marks as lost; other operations can run in between.
const MAX_ACTIONS: i64 = 256;
const LOST: &str = "the server ended before this action; it is unknown whether it was done";

/// A browser action to record before it is done.
#[derive(Debug, Clone, PartialEq)]
pub struct NewBrowserAction {
    /// An exec id, because approvals refer to exec ids.
    pub id: ExecId,
    pub session: SessionKey,
    /// `external` or `sandbox`.
    pub kind: String,
    pub action: String,
    /// The parameters of the action, without typed text.
    pub detail: Json,
    pub actor: String,
    pub started_at: Timestamp,
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    BrowserStatus, "a browser action's status",
    Running = "running",
    Succeeded = "succeeded",
    Failed = "failed",
    /// Denied by the policy or by a person.
    Refused = "refused",
    /// The server ended before the action.
    Lost = "lost",
}

/// The outcome of a browser action.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowserOutcome {
    pub status: BrowserStatus,
    pub error: Option<String>,
    pub url: Option<String>,
    /// A JSON array.
    pub connections: Json,
    pub at: Timestamp,
}

/// A browser action as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct BrowserAction {
    pub asked: NewBrowserAction,
    pub status: BrowserStatus,
    pub error: Option<String>,
    pub url: Option<String>,
    pub connections: Option<Json>,
    pub ended_at: Option<Timestamp>,
}

impl Store {
    /// Records an action. After an error it must not be done. `from` is the origin of the request,
    /// for the audit entry only.
    pub async fn intend_browser_action(&self, new: NewBrowserAction, from: Json) -> Result<(), Error> {
        check_indexed("session_id", new.session.session_id.as_str())?;
        for (field, text) in [("action", &new.action), ("actor", &new.actor), ("detail", &new.detail.to_string())] {
            check_text(field, text)?;
        }
        self.submit(async move |ledger| intend(ledger, &new, &from).await).await
    }

    /// Records the outcome of an action. Returns `false` if it has one already or does not exist.
    pub async fn finish_browser_action(&self, id: &ExecId, outcome: BrowserOutcome) -> Result<bool, Error> {
        check_text("connections", &outcome.connections.to_string())?;
        for (field, text) in [("error", &outcome.error), ("url", &outcome.url)] {
            text.as_ref().map_or(Ok(()), |text| check_text(field, text))?;
        }
        let id = id.clone();
        self.submit(async move |ledger| finish(ledger, &id, &outcome).await).await
    }

    /// Marks all unfinished actions as lost and returns their number. For the start of a server.
    pub async fn mark_browser_actions_lost(&self, at: Timestamp) -> Result<usize, Error> {
        let mut lost = 0;
        loop {
            match self.submit(async move |ledger| mark_some_lost(ledger, at).await).await? {
                0 => return Ok(lost),
                some => lost += some,
            }
        }
    }

    /// Appends an entry about the end of a browser, with its connections since the last action.
    pub async fn record_browser_end(
        &self,
        session: SessionKey,
        kind: &str,
        why: &str,
        connections: Json,
        at: Timestamp,
    ) -> Result<(), Error> {
        check_text("connections", &connections.to_string())?;
        let detail = json!({ "kind": kind, "why": why, "connections": connections });
        self.submit(async move |ledger| {
            ledger.append(draft("closed", session.session_id.as_str(), &session, (at, "ringwall"), detail.clone()));
            Ok(())
        })
        .await
    }

    /// The actions of one session, newest first.
    pub async fn browser_actions(&self, session: &SessionKey, limit: Limit) -> Result<Vec<BrowserAction>, Error> {
        let text = format!(
            "SELECT {COLUMNS} FROM browser_actions WHERE user_id = $1 AND agent_id = $2 AND session_id = $3 \
             ORDER BY -seq LIMIT $4"
        );
        let query = Statement::new("list browser actions", text)
            .bind(session.user_id.as_str())
            .bind(session.agent_id.as_str())
            .bind(session.session_id.as_str())
            .bind(limit.plus_one() - 1);
        self.readers().rows(query).await?.iter().map(read).collect()
    }

    /// Removes the actions that ended before this time, with their approvals, and returns their
    /// number.
    pub async fn prune_browser_actions(&self, ended_before: Timestamp, at: Timestamp, by: &str) -> Result<u64, Error> {
        check_text("actor", by)?;
        let by = by.to_owned();
        self.submit(async move |ledger| prune(ledger, ended_before, at, &by).await).await
    }
}

async fn intend(ledger: &mut Ledger<'_>, new: &NewBrowserAction, from: &Json) -> Result<(), Error> {
    let text = "INSERT INTO browser_actions (seq, id, user_id, agent_id, session_id, kind, action, detail, actor, \
                status, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'running', $10)";
    let detail = new.detail.to_string();
    let digest = Digest::of(detail.as_bytes());
    let insertion = Statement::new("record a browser action", text)
        .bind(ledger.next())
        .bind(new.id.as_str())
        .bind(new.session.user_id.as_str())
        .bind(new.session.agent_id.as_str())
        .bind(new.session.session_id.as_str())
        .bind(new.kind.as_str())
        .bind(new.action.as_str())
        .bind(detail)
        .bind(new.actor.as_str())
        .bind(new.started_at);
    ledger.execute(insertion).await?;
    let detail = json!({
        "session_id": new.session.session_id, "kind": new.kind, "action": new.action,
        "detail_sha256": digest.to_string(), "from": from,
    });
    let draft = draft("intent", new.id.as_str(), &new.session, (new.started_at, &new.actor), detail);
    ledger.append(draft.with_digest(Some(digest)));
    Ok(())
}

/// Marks up to [`MAX_ACTIONS`] actions as lost and returns their number.
async fn mark_some_lost(ledger: &mut Ledger<'_>, at: Timestamp) -> Result<usize, Error> {
    let text = "SELECT id FROM browser_actions WHERE ended_at IS NULL ORDER BY seq LIMIT $1";
    let rows = ledger.rows(Statement::new("look for unfinished browser actions", text).bind(MAX_ACTIONS)).await?;
    let (status, error) = (BrowserStatus::Lost, Some(LOST.to_owned()));
    let outcome = BrowserOutcome { status, error, url: None, connections: json!([]), at };
    for row in &rows {
        let id = row.read("browser_actions", "id", |row| name(row, "id"))?;
        finish(ledger, &id, &outcome).await?;
    }
    Ok(rows.len())
}

async fn finish(ledger: &mut Ledger<'_>, id: &ExecId, outcome: &BrowserOutcome) -> Result<bool, Error> {
    let text = format!(
        "UPDATE browser_actions SET status = $1, error = $2, url = $3, connections = $4, ended_at = $5 \
         WHERE id = $6 AND ended_at IS NULL RETURNING {COLUMNS}"
    );
    let connections = outcome.connections.to_string();
    let update = Statement::new("record the outcome of a browser action", text)
        .bind(outcome.status.as_str())
        .bind(outcome.error.as_deref())
        .bind(outcome.url.as_deref())
        .bind(connections.as_str())
        .bind(outcome.at)
        .bind(id.as_str());
    let Some(row) = ledger.row(update).await? else { return Ok(false) };
    let asked = read(&row)?.asked;
    let detail = json!({
        "session_id": asked.session.session_id, "action": asked.action, "status": outcome.status,
        "connections": outcome.connections.as_array().map_or(0, Vec::len),
        "connections_sha256": Digest::of(connections.as_bytes()).to_string(),
        "url_sha256": outcome.url.as_ref().map(|url| Digest::of(url.as_bytes()).to_string()),
    });
    ledger.append(draft("outcome", id.as_str(), &asked.session, (outcome.at, &asked.actor), detail));
    Ok(true)
}

async fn prune(ledger: &mut Ledger<'_>, ended_before: Timestamp, at: Timestamp, by: &str) -> Result<u64, Error> {
    let text = "DELETE FROM approvals WHERE status <> 'pending' AND exec_id IN \
                (SELECT id FROM browser_actions WHERE ended_at < $1)";
    ledger.execute(Statement::new("remove approvals of browser actions", text).bind(ended_before)).await?;
    let text = "DELETE FROM browser_actions WHERE ended_at < $1";
    let removed = ledger.execute(Statement::new("remove browser actions", text).bind(ended_before)).await?;
    if removed > 0 {
        let detail = json!({ "ended_before": ended_before, "removed": removed });
        ledger.append(Draft::new(at, by, "browser.pruned", "browser_actions", detail));
    }
    Ok(removed)
}

fn draft(verb: &str, subject: &str, session: &SessionKey, (at, actor): (Timestamp, &str), detail: Json) -> Draft {
    let draft = Draft::new(at, actor, &format!("browser.{verb}"), subject, detail);
    draft.owned_by(Some(&session.user_id), Some(&session.agent_id))
}

fn read(row: &Row) -> Result<BrowserAction, Error> {
    row.read("browser_actions", "id", |row| {
        let asked = NewBrowserAction {
            id: name(row, "id")?,
            session: SessionKey {
                user_id: name(row, "user_id")?,
                agent_id: name(row, "agent_id")?,
                session_id: name(row, "session_id")?,
            },
            kind: row.get("kind")?,
            action: row.get("action")?,
            detail: columns::json(row, "detail")?,
            actor: row.get("actor")?,
            started_at: Timestamp::from_milliseconds(row.get("started_at")?),
        };
        Ok(BrowserAction {
            asked,
            status: name(row, "status")?,
            error: row.get("error")?,
            url: row.get("url")?,
            connections: columns::optional_json(row, "connections")?,
            ended_at: row.get::<Option<i64>>("ended_at")?.map(Timestamp::from_milliseconds),
        })
    })
}
