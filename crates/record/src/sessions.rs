//! What was said about sessions: who is asked about their code, and how strictly it is treated.
//!
//! A session itself is its files, which the record does not know. What is said here ends with them: whoever removes a
//! session forgets what was said first, so that a later session of the same name never inherits a lenient word. Every change
//! is an audit entry in the same transaction.

use std::collections::HashMap;

use serde_json::json;

use crate::audit::{Draft, Event};
use crate::columns::name;
use crate::driver::{BadColumn, Row};
use crate::error::Error;
use crate::id::{AgentId, UserId};
use crate::ledger::Ledger;
use crate::statement::{Statement, check_indexed, check_text};
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::Operation;

/// Who says whether code with a high risk may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Confirmation {
    /// A person, wherever they look.
    #[default]
    Websocket,
    /// Nobody: it may. For development.
    AutoApprove,
    /// Nobody: it may not.
    AutoReject,
    /// A person or a program that is told at an address.
    Callback,
}

impl Confirmation {
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

/// Which session: ids are a user's and an agent's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionName {
    pub user_id: UserId,
    pub agent_id: AgentId,
    pub session_id: String,
}

/// What was said about one. What is absent is as the settings have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionRules {
    pub confirmation: Option<Confirmation>,
    pub callback_url: Option<String>,
    /// `strict` or `permissive`; what that means is decided elsewhere.
    pub security_mode: Option<String>,
}

impl Store {
    /// Nothing where nothing was said.
    pub async fn session_rules(&self, session: &SessionName) -> Result<Option<SessionRules>, Error> {
        let stamp = self.remembered().stamp();
        if let Some(rules) = self.remembered().find_rules(session, stamp) {
            return Ok(rules);
        }
        let text = "SELECT confirmation, callback_url, security_mode FROM sessions \
                    WHERE user_id = $1 AND agent_id = $2 AND session_id = $3";
        let question = session.bind(Statement::new("read what was said about a session", text));
        let row = self.readers().row(question).await?;
        let rules = row.map(|row| row.read("sessions", "session_id", read)).transpose()?;
        self.remembered().keep_rules(session.clone(), rules.clone(), stamp);
        Ok(rules)
    }

    /// The same of many, in one question; those about which nothing was said are missing.
    pub async fn rules_of_sessions(
        &self,
        sessions: &[SessionName],
    ) -> Result<HashMap<SessionName, SessionRules>, Error> {
        if sessions.is_empty() {
            return Ok(HashMap::new());
        }
        let mut question = Statement::new("read what was said about sessions", "");
        let mut places = Vec::with_capacity(sessions.len());
        for SessionName { user_id, agent_id, session_id } in sessions {
            let words = [user_id.as_str(), agent_id.as_str(), session_id.as_str()];
            places.push(format!("({})", words.map(|word| question.place(word)).join(", ")));
        }
        question.text = format!(
            "SELECT user_id, agent_id, session_id, confirmation, callback_url, security_mode FROM sessions \
             WHERE (user_id, agent_id, session_id) IN (VALUES {})",
            places.join(", ")
        )
        .into();
        let rows = self.readers().rows(question).await?;
        rows.iter().map(|row| row.read("sessions", "session_id", |row| Ok((whose(row)?, read(row)?)))).collect()
    }

    /// Every session about which something was said.
    pub async fn ruled_sessions(&self) -> Result<Vec<SessionName>, Error> {
        let text = "SELECT user_id, agent_id, session_id FROM sessions";
        let rows = self.readers().rows(Statement::new("list what was said about sessions", text)).await?;
        rows.iter().map(|row| row.read("sessions", "session_id", whose)).collect()
    }

    /// Says something about a session, in place of what was said before.
    pub async fn rule_session(
        &self,
        session: SessionName,
        rules: SessionRules,
        at: Timestamp,
        by: &str,
    ) -> Result<(), Error> {
        check_indexed("session_id", &session.session_id)?;
        check_text("changed_by", by)?;
        rules.callback_url.as_ref().map_or(Ok(()), |url| check_text("callback_url", url))?;
        self.submit_change(Rule { session, rules, at, by: by.to_owned() }).await
    }

    /// Forgets what was said about a session.
    pub async fn forget_session(&self, session: SessionName, at: Timestamp, by: &str) -> Result<(), Error> {
        check_text("changed_by", by)?;
        self.submit_change(Forget { session, at, by: by.to_owned() }).await
    }
}

impl SessionName {
    fn bind(&self, statement: Statement) -> Statement {
        let statement = statement.bind(self.user_id.as_str()).bind(self.agent_id.as_str());
        statement.bind(self.session_id.as_str())
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

fn whose(row: &Row) -> Result<SessionName, BadColumn> {
    Ok(SessionName {
        user_id: name(row, "user_id")?,
        agent_id: name(row, "agent_id")?,
        session_id: row.get("session_id")?,
    })
}

fn read(row: &Row) -> Result<SessionRules, BadColumn> {
    let confirmation: Option<String> = row.get("confirmation")?;
    let confirmation = confirmation.map(|text| text.parse()).transpose();
    Ok(SessionRules {
        confirmation: confirmation.map_err(|error| BadColumn::new("confirmation", error))?,
        callback_url: row.get("callback_url")?,
        security_mode: row.get("security_mode")?,
    })
}

struct Rule {
    session: SessionName,
    rules: SessionRules,
    at: Timestamp,
    by: String,
}

impl Operation for Rule {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        let SessionRules { confirmation, callback_url, security_mode } = &self.rules;
        let text = "INSERT INTO sessions (user_id, agent_id, session_id, confirmation, callback_url, security_mode, \
                    changed_at, changed_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
                    ON CONFLICT (user_id, agent_id, session_id) DO UPDATE SET confirmation = excluded.confirmation, \
                    callback_url = excluded.callback_url, security_mode = excluded.security_mode, \
                    changed_at = excluded.changed_at, changed_by = excluded.changed_by";
        let statement = self.session.bind(Statement::new("say something about a session", text));
        let statement = statement
            .bind(confirmation.map(Confirmation::as_str))
            .bind(callback_url.as_deref())
            .bind(security_mode.as_deref())
            .bind(self.at)
            .bind(self.by.as_str());
        ledger.execute(statement).await?;
        let detail =
            json!({ "confirmation": confirmation, "callback_url": callback_url, "security_mode": security_mode });
        ledger.append(self.session.event("changed", self.at, &self.by, detail));
        Ok(())
    }
}

struct Forget {
    session: SessionName,
    at: Timestamp,
    by: String,
}

impl Operation for Forget {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        let text = "DELETE FROM sessions WHERE user_id = $1 AND agent_id = $2 AND session_id = $3";
        ledger.execute(self.session.bind(Statement::new("forget what was said about a session", text))).await?;
        ledger.append(self.session.event("deleted", self.at, &self.by, json!({})));
        Ok(())
    }
}
