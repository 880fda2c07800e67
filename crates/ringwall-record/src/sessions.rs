//! Rules of single sessions: who confirms risky code, and the security mode.
//!
//! A session itself is a directory; the record knows only its rules. A row contains two sets of
//! rules, the operator's and the user's. A user's write changes only the user's columns, so it
//! cannot replace an operator's rules. When a session is deleted, its row stays with `ended` set:
//! the operator's rules then only tighten a new session with the same id. Every change is an audit
//! entry in the same transaction.

use std::collections::HashMap;

use ringwall_ids::{AgentId, SessionId, UserId};
use serde_json::json;

use crate::audit::entry::Draft;
use crate::audit::rows::SESSIONS;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, Value, check_indexed, check_text};
use crate::error::Error;
use crate::exec::columns::name;
use crate::store::Store;
use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

text_enum! {
    /// Who decides whether code with a high risk may run
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
    #[serde(rename_all = "kebab-case")]
    Confirmation, "a confirmation mode: websocket, auto-approve, auto-reject or callback",
    /// A person, who answers over WebSocket, HTTP or in the console
    #[default]
    Websocket = "websocket",
    /// No person is asked, and the code runs; for development
    AutoApprove = "auto-approve",
    /// No person is asked, and the code does not run
    AutoReject = "auto-reject",
    /// A person or program that gets the question at a callback URL
    Callback = "callback",
}

impl Confirmation {
    /// `auto-approve` < `websocket` = `callback` < `auto-reject`.
    pub const fn strictness(self) -> u8 {
        match self {
            Self::AutoApprove => 0,
            Self::Websocket | Self::Callback => 1,
            Self::AutoReject => 2,
        }
    }
}

/// Identifies a session: session ids are unique only within one user and agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    pub user_id: UserId,
    pub agent_id: AgentId,
    pub session_id: SessionId,
}

/// One author's rules for a session. The settings apply to absent fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorRules {
    pub confirmation: Option<Confirmation>,
    /// Stored for an operator only.
    pub callback_url: Option<String>,
    /// `strict` or `permissive`; the service defines their meaning.
    pub security_mode: Option<String>,
}

/// The rules of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRules {
    pub operator: AuthorRules,
    pub user: AuthorRules,
    /// The session was deleted after the operator's rules were written.
    pub has_ended: bool,
}

/// Who writes the rules, which decides what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulesAuthor {
    /// An owner or operator. Both sets are written, because an operator may replace the user's
    /// rules, and `ended` is cleared.
    Operator,
    /// Only the user's rules are written.
    User,
}

/// Decides if the user's rules survive the deletion of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserRules {
    /// The user or an operator deletes the session.
    Dropped,
    /// An agent or retention deletes the session: neither may lift a user's rules.
    Kept,
}

/// A session with rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionWithRules {
    pub name: SessionKey,
    pub has_ended: bool,
}

const COLUMNS: &str = "confirmation, callback_url, security_mode, user_confirmation, user_security_mode, ended";

impl Store {
    /// `None` for a session without rules.
    pub async fn session_rules(&self, session: &SessionKey) -> Result<Option<SessionRules>, Error> {
        let stamp = self.read_cache().stamp();
        if let Some(rules) = self.read_cache().get_rules(session, stamp) {
            return Ok(rules);
        }
        let text = format!("SELECT {COLUMNS} FROM sessions WHERE user_id = $1 AND agent_id = $2 AND session_id = $3");
        let query = session.bind(Statement::new("read the rules of a session", text));
        let row = self.readers().row(query).await?;
        let rules = row.map(|row| row.read("sessions", "session_id", read)).transpose()?;
        self.read_cache().insert_rules(session.clone(), rules.clone(), stamp);
        Ok(rules)
    }

    /// The rules of many sessions in one query. Sessions without rules are missing.
    pub async fn rules_of_sessions(&self, sessions: &[SessionKey]) -> Result<HashMap<SessionKey, SessionRules>, Error> {
        if sessions.is_empty() {
            return Ok(HashMap::new());
        }
        let mut query = Statement::new("read the rules of sessions", "");
        let mut placeholders = Vec::with_capacity(sessions.len());
        for SessionKey { user_id, agent_id, session_id } in sessions {
            let key = [user_id.as_str(), agent_id.as_str(), session_id.as_str()];
            placeholders.push(format!("({})", key.map(|part| query.placeholder(part)).join(", ")));
        }
        query.text = format!(
            "SELECT user_id, agent_id, session_id, {COLUMNS} FROM sessions WHERE (user_id, agent_id, session_id) IN (VALUES {})",
            placeholders.join(", ")
        )
        .into();
        let rows = self.readers().rows(query).await?;
        rows.iter().map(|row| row.read("sessions", "session_id", |row| Ok((owner(row)?, read(row)?)))).collect()
    }

    /// Every session with rules, deleted ones included.
    pub async fn sessions_with_rules(&self) -> Result<Vec<SessionWithRules>, Error> {
        let text = "SELECT user_id, agent_id, session_id, ended FROM sessions";
        let rows = self.readers().rows(Statement::new("list sessions with rules", text)).await?;
        let read = |row: &Row| Ok(SessionWithRules { name: owner(row)?, has_ended: has_ended(row)? });
        rows.iter().map(|row| row.read("sessions", "session_id", read)).collect()
    }

    /// Replaces the author's rules for a session; see [`RulesAuthor`] for what is written.
    pub async fn set_session_rules(
        &self,
        session: SessionKey,
        author: RulesAuthor,
        rules: SessionRules,
        at: Timestamp,
        by: &str,
    ) -> Result<(), Error> {
        check_indexed("session_id", session.session_id.as_str())?;
        check_text("changed_by", by)?;
        rules.operator.callback_url.as_ref().map_or(Ok(()), |url| check_text("callback_url", url))?;
        let by = by.to_owned();
        self.submit_change(async move |ledger| set_rules(ledger, &session, author, &rules, (at, &by)).await).await
    }

    /// Records that a session is deleted. The operator's rules stay; `user_rules` says whether
    /// the user's stay. A row without a rule that tightens is removed.
    pub async fn end_session(
        &self,
        session: SessionKey,
        user_rules: UserRules,
        at: Timestamp,
        by: &str,
    ) -> Result<(), Error> {
        check_text("changed_by", by)?;
        let by = by.to_owned();
        self.submit_change(async move |ledger| end_session(ledger, &session, user_rules, (at, &by)).await).await
    }
}

impl SessionKey {
    fn bind(&self, statement: Statement) -> Statement {
        statement.bind_all(self.key())
    }

    fn key(&self) -> [Value; 3] {
        [self.user_id.as_str().into(), self.agent_id.as_str().into(), self.session_id.as_str().into()]
    }

    /// Appends an entry about the session, with the digest of its row.
    async fn append(
        &self,
        ledger: &mut Ledger<'_>,
        action: &str,
        (at, by): (Timestamp, &str),
        detail: serde_json::Value,
    ) -> Result<(), Error> {
        let digest = SESSIONS.digest(ledger, self.key()).await?;
        let draft = Draft::new(at, by, action, self.session_id.as_str(), detail);
        ledger.append(draft.owned_by(Some(&self.user_id), Some(&self.agent_id)).with_digest(digest));
        Ok(())
    }
}

fn owner(row: &Row) -> Result<SessionKey, BadColumn> {
    Ok(SessionKey {
        user_id: name(row, "user_id")?,
        agent_id: name(row, "agent_id")?,
        session_id: name(row, "session_id")?,
    })
}

fn has_ended(row: &Row) -> Result<bool, BadColumn> {
    row.get::<i64>("ended").map(|ended| ended != 0)
}

fn read(row: &Row) -> Result<SessionRules, BadColumn> {
    let confirmation = |column| {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse()).transpose().map_err(|error: Error| BadColumn::new(column, error))
    };
    Ok(SessionRules {
        operator: AuthorRules {
            confirmation: confirmation("confirmation")?,
            callback_url: row.get("callback_url")?,
            security_mode: row.get("security_mode")?,
        },
        user: AuthorRules {
            confirmation: confirmation("user_confirmation")?,
            callback_url: None,
            security_mode: row.get("user_security_mode")?,
        },
        has_ended: has_ended(row)?,
    })
}

async fn set_rules(
    ledger: &mut Ledger<'_>,
    session: &SessionKey,
    author: RulesAuthor,
    SessionRules { operator, user, .. }: &SessionRules,
    (at, by): (Timestamp, &str),
) -> Result<(), Error> {
    // Both statements share $1 to $7.
    let bind = |text: &'static str| {
        session
            .bind(Statement::new("store the rules of a session", text))
            .bind(user.confirmation.map(Confirmation::as_str))
            .bind(user.security_mode.as_deref())
            .bind(at)
            .bind(by)
    };
    let (statement, author, rules) = match author {
        RulesAuthor::Operator => {
            let text = "INSERT INTO sessions (user_id, agent_id, session_id, user_confirmation, \
                        user_security_mode, changed_at, changed_by, confirmation, callback_url, security_mode) \
                        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                        ON CONFLICT (user_id, agent_id, session_id) DO UPDATE SET \
                        user_confirmation = excluded.user_confirmation, \
                        user_security_mode = excluded.user_security_mode, changed_at = excluded.changed_at, \
                        changed_by = excluded.changed_by, confirmation = excluded.confirmation, \
                        callback_url = excluded.callback_url, security_mode = excluded.security_mode, ended = 0";
            let statement = bind(text)
                .bind(operator.confirmation.map(Confirmation::as_str))
                .bind(operator.callback_url.as_deref())
                .bind(operator.security_mode.as_deref());
            (statement, "operator", operator)
        }
        RulesAuthor::User => {
            let text = "INSERT INTO sessions (user_id, agent_id, session_id, user_confirmation, user_security_mode, \
                        changed_at, changed_by) VALUES ($1, $2, $3, $4, $5, $6, $7) \
                        ON CONFLICT (user_id, agent_id, session_id) DO UPDATE SET \
                        user_confirmation = excluded.user_confirmation, \
                        user_security_mode = excluded.user_security_mode, changed_at = excluded.changed_at, \
                        changed_by = excluded.changed_by";
            (bind(text), "user", user)
        }
    };
    ledger.execute(statement).await?;
    let AuthorRules { confirmation, callback_url, security_mode } = rules;
    let detail = json!({ "author": author, "confirmation": confirmation, "callback_url": callback_url,
        "security_mode": security_mode });
    session.append(ledger, "session.changed", (at, by), detail).await
}

async fn end_session(
    ledger: &mut Ledger<'_>,
    session: &SessionKey,
    user_rules: UserRules,
    author: (Timestamp, &str),
) -> Result<(), Error> {
    let text = match user_rules {
        UserRules::Dropped => {
            "UPDATE sessions SET ended = 1, user_confirmation = NULL, user_security_mode = NULL \
             WHERE user_id = $1 AND agent_id = $2 AND session_id = $3"
        }
        UserRules::Kept => "UPDATE sessions SET ended = 1 WHERE user_id = $1 AND agent_id = $2 AND session_id = $3",
    };
    ledger.execute(session.bind(Statement::new("record the deletion of a session", text))).await?;
    // After the deletion only rules that tighten apply, so a row without any is removed.
    let text = "DELETE FROM sessions WHERE user_id = $1 AND agent_id = $2 AND session_id = $3 \
                AND (confirmation IS NULL OR confirmation = 'auto-approve') \
                AND (security_mode IS NULL OR security_mode = 'permissive') \
                AND user_confirmation IS NULL AND user_security_mode IS NULL";
    ledger.execute(session.bind(Statement::new("remove the row of a deleted session", text))).await?;
    session.append(ledger, "session.deleted", author, json!({})).await
}
