//! Rules of single sessions: who confirms risky code, and the security mode.
//!
//! A session itself is a directory; the record knows only its rules. A row contains two sets of
//! rules, the operator's and the user's. A user's write changes only the user's columns, so it
//! cannot replace an operator's rules. When a session is deleted, its row stays with `ended` set:
//! the operator's rules then only tighten a new session with the same id. Every change is an audit
//! entry in the same transaction.

use std::collections::HashMap;

use ringwall_ids::{AgentId, UserId};
use serde_json::json;

use crate::audit::entry::{Draft, Event};
use crate::audit::rows::SESSIONS;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, Value, check_indexed, check_text};
use crate::error::Error;
use crate::exec::columns::name;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;
use crate::writer::queue::Operation;

/// Who decides whether code with a high risk may run
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Confirmation {
    /// A person, who answers over WebSocket, HTTP or in the console
    #[default]
    Websocket,
    /// No person is asked, and the code runs; for development
    AutoApprove,
    /// No person is asked, and the code does not run
    AutoReject,
    /// A person or program that gets the question at a callback URL
    Callback,
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

    pub const ALL: [Self; 4] = [Self::Websocket, Self::AutoApprove, Self::AutoReject, Self::Callback];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Websocket => "websocket",
            Self::AutoApprove => "auto-approve",
            Self::AutoReject => "auto-reject",
            Self::Callback => "callback",
        }
    }
}

impl std::fmt::Display for Confirmation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl std::str::FromStr for Confirmation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == text);
        known.ok_or(Error::NameMalformed {
            what: "a confirmation mode: websocket, auto-approve, auto-reject or callback",
        })
    }
}

/// Identifies a session: session ids are unique only within one user and agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub user_id: UserId,
    pub agent_id: AgentId,
    pub session_id: String,
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
        check_indexed("session_id", &session.session_id)?;
        check_text("changed_by", by)?;
        rules.operator.callback_url.as_ref().map_or(Ok(()), |url| check_text("callback_url", url))?;
        self.submit_change(SetRules { session, author, rules, at, by: by.to_owned() }).await
    }

    /// Records that a session is deleted. The operator's rules stay; `user_word` says whether the
    /// user's stay. A row without a rule that tightens is removed.
    pub async fn end_session(
        &self,
        session: SessionKey,
        user_word: UserRules,
        at: Timestamp,
        by: &str,
    ) -> Result<(), Error> {
        check_text("changed_by", by)?;
        self.submit_change(EndSession { session, user_word, at, by: by.to_owned() }).await
    }
}

impl SessionKey {
    fn bind(&self, statement: Statement) -> Statement {
        let statement = statement.bind(self.user_id.as_str()).bind(self.agent_id.as_str());
        statement.bind(self.session_id.as_str())
    }

    fn key(&self) -> [Value; 3] {
        [self.user_id.as_str().into(), self.agent_id.as_str().into(), self.session_id.as_str().into()]
    }

    fn event(&self, verb: &str, at: Timestamp, by: &str, detail: serde_json::Value) -> Draft {
        let event = Event {
            at,
            actor: by.to_owned(),
            action: format!("session.{verb}"),
            subject: self.session_id.clone(),
            user_id: Some(self.user_id.clone()),
            agent_id: Some(self.agent_id.clone()),
            detail,
        };
        Draft { event, digest: None }
    }
}

fn owner(row: &Row) -> Result<SessionKey, BadColumn> {
    Ok(SessionKey {
        user_id: name(row, "user_id")?,
        agent_id: name(row, "agent_id")?,
        session_id: row.get("session_id")?,
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

struct SetRules {
    session: SessionKey,
    author: RulesAuthor,
    rules: SessionRules,
    at: Timestamp,
    by: String,
}

impl Operation for SetRules {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        let SessionRules { operator, user, .. } = &self.rules;
        let statement = match self.author {
            RulesAuthor::Operator => {
                let text = "INSERT INTO sessions (user_id, agent_id, session_id, user_confirmation, \
                            user_security_mode, changed_at, changed_by, confirmation, callback_url, security_mode) \
                            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                            ON CONFLICT (user_id, agent_id, session_id) DO UPDATE SET \
                            user_confirmation = excluded.user_confirmation, \
                            user_security_mode = excluded.user_security_mode, changed_at = excluded.changed_at, \
                            changed_by = excluded.changed_by, confirmation = excluded.confirmation, \
                            callback_url = excluded.callback_url, security_mode = excluded.security_mode, ended = 0";
                self.bind_user_word(text)
                    .bind(operator.confirmation.map(Confirmation::as_str))
                    .bind(operator.callback_url.as_deref())
                    .bind(operator.security_mode.as_deref())
            }
            RulesAuthor::User => self.bind_user_word(
                "INSERT INTO sessions (user_id, agent_id, session_id, user_confirmation, user_security_mode, \
                 changed_at, changed_by) VALUES ($1, $2, $3, $4, $5, $6, $7) \
                 ON CONFLICT (user_id, agent_id, session_id) DO UPDATE SET \
                 user_confirmation = excluded.user_confirmation, \
                 user_security_mode = excluded.user_security_mode, changed_at = excluded.changed_at, \
                 changed_by = excluded.changed_by",
            ),
        };
        ledger.execute(statement).await?;
        let (author, word) = match self.author {
            RulesAuthor::Operator => ("operator", operator),
            RulesAuthor::User => ("user", user),
        };
        let AuthorRules { confirmation, callback_url, security_mode } = word;
        let detail = json!({ "author": author, "confirmation": confirmation, "callback_url": callback_url,
            "security_mode": security_mode });
        let mut draft = self.session.event("changed", self.at, &self.by, detail);
        draft.digest = SESSIONS.digest(ledger, self.session.key()).await?;
        ledger.append(draft);
        Ok(())
    }
}

impl SetRules {
    /// Binds $1 to $7, which both statements share.
    fn bind_user_word(&self, text: &'static str) -> Statement {
        let user = &self.rules.user;
        let statement = self.session.bind(Statement::new("store the rules of a session", text));
        statement
            .bind(user.confirmation.map(Confirmation::as_str))
            .bind(user.security_mode.as_deref())
            .bind(self.at)
            .bind(self.by.as_str())
    }
}

/// Decides if the user's rules survive the deletion of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserRules {
    /// The user or an operator deletes the session.
    Dropped,
    /// An agent or retention deletes the session: neither may lift a user's rules.
    Kept,
}

struct EndSession {
    session: SessionKey,
    user_word: UserRules,
    at: Timestamp,
    by: String,
}

impl Operation for EndSession {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        let text = match self.user_word {
            UserRules::Dropped => {
                "UPDATE sessions SET ended = 1, user_confirmation = NULL, user_security_mode = NULL \
                 WHERE user_id = $1 AND agent_id = $2 AND session_id = $3"
            }
            UserRules::Kept => "UPDATE sessions SET ended = 1 WHERE user_id = $1 AND agent_id = $2 AND session_id = $3",
        };
        ledger.execute(self.session.bind(Statement::new("record the deletion of a session", text))).await?;
        // After the deletion only rules that tighten apply, so a row without any is removed.
        let text = "DELETE FROM sessions WHERE user_id = $1 AND agent_id = $2 AND session_id = $3 \
                    AND (confirmation IS NULL OR confirmation = 'auto-approve') \
                    AND (security_mode IS NULL OR security_mode = 'permissive') \
                    AND user_confirmation IS NULL AND user_security_mode IS NULL";
        ledger.execute(self.session.bind(Statement::new("remove the row of a deleted session", text))).await?;
        let mut draft = self.session.event("deleted", self.at, &self.by, json!({}));
        draft.digest = SESSIONS.digest(ledger, self.session.key()).await?;
        ledger.append(draft);
        Ok(())
    }
}
