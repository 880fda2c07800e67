//! Types that both the command line and the HTTP API read or print: token roles, tokens, and
//! verifications of the audit log.

use clap::ValueEnum;
use ringwall_record::{Digest, Link, Verification};
use ringwall_service::{Holder, Timestamp, TokenId, TokenInfo};
use serde::Serialize;
use utoipa::ToSchema;

use crate::message::Message;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    Owner,
    Operator,
    User,
    Agent,
}

/// Checks that the role has exactly the names that it needs.
pub(crate) fn holder(role: Role, user: Option<&str>, agent: Option<&str>) -> Result<Holder, Message> {
    match (role, user, agent) {
        (Role::Owner, None, None) => Ok(Holder::Owner),
        (Role::Operator, None, None) => Ok(Holder::Operator),
        (Role::User, Some(user), None) => Ok(Holder::User(user.parse()?)),
        (Role::Agent, Some(user), Some(agent)) => Ok(Holder::Agent(user.parse()?, agent.parse()?)),
        (Role::Owner | Role::Operator, ..) => {
            Err(Message::new("the roles owner and operator take neither a user nor an agent"))
        }
        (Role::User, ..) => Err(Message::new("the role user needs a user and takes no agent")),
        (Role::Agent, ..) => Err(Message::new("the role agent needs a user and an agent")),
    }
}

/// A token in a list; it does not contain the secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenView {
    id: TokenId,
    /// `owner`, `operator`, `user` or `agent`
    role: &'static str,
    user_id: Option<String>,
    agent_id: Option<String>,
    label: Option<String>,
    created_at: Timestamp,
    created_by: String,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

impl From<&TokenInfo> for TokenView {
    fn from(token: &TokenInfo) -> Self {
        let (user, agent) = names(&token.holder);
        Self {
            id: token.id.clone(),
            role: token.holder.role(),
            user_id: user.map(str::to_owned),
            agent_id: agent.map(str::to_owned),
            label: token.label.clone(),
            created_at: token.created_at,
            created_by: token.created_by.clone(),
            expires_at: token.expires_at,
            revoked_at: token.revoked_at,
        }
    }
}

pub(crate) fn names(holder: &Holder) -> (Option<&str>, Option<&str>) {
    match holder {
        Holder::Owner | Holder::Operator => (None, None),
        Holder::User(user) => (Some(user.as_str()), None),
        Holder::Agent(user, agent) => (Some(user.as_str()), Some(agent.as_str())),
    }
}

/// The result of a verification of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VerificationReport {
    intact: bool,
    /// Number of entries that were checked
    checked: u64,
    /// The newest entry; compare it with a head that was stored elsewhere
    head: Head,
    /// `valid`, `not_checked` without the data directory's key, or `missing` or `invalid`, which are also findings
    head_signature: &'static str,
    findings: Vec<String>,
    /// Number of findings that are not listed
    further: u64,
    /// Remarks that are not violations
    notes: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Head {
    seq: i64,
    hash: Digest,
}

impl From<&Verification> for VerificationReport {
    fn from(verification: &Verification) -> Self {
        Self {
            intact: verification.is_intact(),
            checked: verification.checked,
            head: Head { seq: verification.head.seq, hash: verification.head.hash },
            head_signature: verification.signature.as_str(),
            findings: verification.findings.iter().map(ToString::to_string).collect(),
            further: verification.further,
            notes: verification.notes.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Parses `SEQ:HASH`, the output of `ringwall audit head`.
pub(crate) fn parse_head(text: &str) -> Result<Link, String> {
    let parsed = text.split_once(':').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash.parse().ok()?)));
    let (seq, hash) = parsed
        .ok_or("expected SEQ:HASH as printed by `ringwall audit head`: a number, a colon, 64 hexadecimal digits")?;
    Ok(Link { seq, hash })
}
