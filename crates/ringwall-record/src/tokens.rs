//! API tokens.
//!
//! Only the SHA-256 of a token's text is stored. A token has 256 random bits, so it cannot be
//! guessed, and a slow password hash would only slow down every request. The lookup needs no
//! constant-time comparison: an attacker cannot choose the hash, so its duration reveals nothing
//! about stored hashes.

use ringwall_ids::{AgentId, TokenId, UserId};
use serde_json::json;

use crate::audit::entry::Draft;
use crate::audit::rows::TOKENS;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::columns::name;
use crate::page::{Cursor, Limit, Page};
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

/// The role of a token, with its user and agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Owner,
    Operator,
    User(UserId),
    Agent(UserId, AgentId),
}

impl Holder {
    pub const fn role(&self) -> &'static str {
        match self {
            Holder::Owner => "owner",
            Holder::Operator => "operator",
            Holder::User(_) => "user",
            Holder::Agent(..) => "agent",
        }
    }

    fn subject(&self) -> (Option<&UserId>, Option<&AgentId>) {
        match self {
            Holder::Owner | Holder::Operator => (None, None),
            Holder::User(user) => (Some(user), None),
            Holder::Agent(user, agent) => (Some(user), Some(agent)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub id: TokenId,
    /// SHA-256 of the token's text.
    pub hash: Digest,
    pub holder: Holder,
    pub label: Option<String>,
    pub created_at: Timestamp,
    /// The id of a token, or a part of the program.
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    pub holder: Holder,
    pub label: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

impl Token {
    /// True if the token is accepted at this time. A revoked token is never accepted.
    pub fn is_valid(&self, at: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| at < expires_at)
    }
}

/// The answer to [`Store::revoke_token`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    Recorded,
    AlreadyRevoked(Timestamp),
    /// The only valid owner token, which was not revoked.
    LastOwner,
    Unknown,
}

const SELECT: &str =
    "SELECT seq, id, role, user_id, agent_id, label, created_at, created_by, expires_at, revoked_at FROM tokens";

impl Store {
    pub async fn create_token(&self, token: NewToken) -> Result<(), Error> {
        check_text("created_by", &token.created_by)?;
        token.label.as_ref().map_or(Ok(()), |label| check_text("label", label))?;
        match self.submit(async move |ledger| create(ledger, &token).await).await? {
            Created::Recorded => Ok(()),
            Created::Taken => Err(Error::TokenTaken),
        }
    }

    /// Also finds revoked and expired tokens: the caller checks [`Token::is_valid`].
    pub async fn token_by_hash(&self, hash: &Digest) -> Result<Option<Token>, Error> {
        let stamp = self.read_cache().stamp();
        if let Some(token) = self.read_cache().get_token(hash, stamp) {
            return Ok(Some(token));
        }
        let query = Statement::new("read a token", format!("{SELECT} WHERE hash = $1")).bind(*hash);
        let row = self.readers().row(query).await?;
        let token = row.map(|row| read(&row).map(|(_, token)| token)).transpose()?;
        if let Some(token) = &token {
            self.read_cache().insert_token(*hash, token.clone(), stamp);
        }
        Ok(token)
    }

    /// Also finds revoked and expired tokens.
    pub async fn token(&self, id: &TokenId) -> Result<Option<Token>, Error> {
        let query = Statement::new("read a token", format!("{SELECT} WHERE id = $1")).bind(id.as_str());
        let row = self.readers().row(query).await?;
        row.map(|row| read(&row).map(|(_, token)| token)).transpose()
    }

    /// Newest first.
    pub async fn tokens(&self, limit: Limit, cursor: Option<Cursor>) -> Result<Page<Token>, Error> {
        let text = format!("{SELECT} WHERE seq < $1 ORDER BY seq DESC LIMIT $2");
        let before = cursor.map_or(i64::MAX, |Cursor(seq)| seq);
        let rows = self.readers().rows(Statement::new("list tokens", text).bind(before).bind(limit.plus_one())).await?;
        Ok(Page::cut(rows.iter().map(read).collect::<Result<_, Error>>()?, limit))
    }

    /// Revokes a token, unless it is the last valid owner token. Write transactions run one after
    /// the other, so of two concurrent revocations, also by two processes, the second sees the
    /// first.
    pub async fn revoke_token(&self, id: &TokenId, at: Timestamp, by: &str) -> Result<Revocation, Error> {
        check_text("actor", by)?;
        let (id, by) = (id.clone(), by.to_owned());
        self.submit_change(async move |ledger| revoke(ledger, &id, at, &by).await).await
    }
}

enum Created {
    Recorded,
    Taken,
}

async fn create(ledger: &mut Ledger<'_>, token: &NewToken) -> Result<Created, Error> {
    let (user_id, agent_id) = token.holder.subject();
    let text = "INSERT INTO tokens (seq, id, hash, role, user_id, agent_id, label, created_at, created_by, expires_at) \
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";
    let insertion = Statement::new("record a token", text)
        .bind(ledger.next())
        .bind(token.id.as_str())
        .bind(token.hash)
        .bind(token.holder.role())
        .bind(user_id.map(UserId::as_str))
        .bind(agent_id.map(AgentId::as_str))
        .bind(token.label.as_deref())
        .bind(token.created_at)
        .bind(token.created_by.as_str())
        .bind(token.expires_at);
    if ledger.execute(insertion).await? == 0 {
        return Ok(Created::Taken);
    }
    let detail = json!({ "role": token.holder.role(), "label": token.label, "expires_at": token.expires_at });
    let draft = Draft::new(token.created_at, &token.created_by, "token.created", &token.id, detail);
    let digest = TOKENS.digest(ledger, [token.id.as_str().into()]).await?;
    ledger.append(draft.owned_by(user_id, agent_id).with_digest(digest));
    Ok(Created::Recorded)
}

async fn revoke(ledger: &mut Ledger<'_>, id: &TokenId, at: Timestamp, by: &str) -> Result<Revocation, Error> {
    let query = Statement::new("read a token", format!("{SELECT} WHERE id = $1")).bind(id.as_str());
    let Some(row) = ledger.row(query).await? else { return Ok(Revocation::Unknown) };
    let (_, token) = read(&row)?;
    if let Some(before) = token.revoked_at {
        return Ok(Revocation::AlreadyRevoked(before));
    }
    if token.holder == Holder::Owner && token.is_valid(at) && !leaves_an_owner(ledger, id, at).await? {
        return Ok(Revocation::LastOwner);
    }
    let update = Statement::new("revoke a token", "UPDATE tokens SET revoked_at = $1 WHERE id = $2");
    ledger.execute(update.bind(at).bind(id.as_str())).await?;
    let (user_id, agent_id) = token.holder.subject();
    let draft = Draft::new(at, by, "token.revoked", id, json!({ "role": token.holder.role() }));
    let digest = TOKENS.digest(ledger, [id.as_str().into()]).await?;
    ledger.append(draft.owned_by(user_id, agent_id).with_digest(digest));
    Ok(Revocation::Recorded)
}

/// True if another owner token than this one is valid.
async fn leaves_an_owner(ledger: &mut Ledger<'_>, id: &TokenId, at: Timestamp) -> Result<bool, Error> {
    let text = "SELECT id FROM tokens WHERE role = 'owner' AND id <> $1 AND revoked_at IS NULL \
                AND (expires_at IS NULL OR expires_at > $2) LIMIT 1";
    let query = Statement::new("look for another owner token", text).bind(id.as_str()).bind(at);
    Ok(ledger.row(query).await?.is_some())
}

fn read(row: &Row) -> Result<(i64, Token), Error> {
    row.read("tokens", "id", |row| {
        let at = |column| Ok(row.get::<Option<i64>>(column)?.map(Timestamp::from_milliseconds));
        let token = Token {
            id: name(row, "id")?,
            holder: holder(row)?,
            label: row.get("label")?,
            created_at: Timestamp::from_milliseconds(row.get("created_at")?),
            created_by: row.get("created_by")?,
            expires_at: at("expires_at")?,
            revoked_at: at("revoked_at")?,
        };
        Ok((row.get("seq")?, token))
    })
}

/// An unknown role is an error and gives no rights.
fn holder(row: &Row) -> Result<Holder, BadColumn> {
    let role: String = row.get("role")?;
    Ok(match role.as_str() {
        "owner" => Holder::Owner,
        "operator" => Holder::Operator,
        "user" => Holder::User(name(row, "user_id")?),
        "agent" => Holder::Agent(name(row, "user_id")?, name(row, "agent_id")?),
        _ => return Err(BadColumn::new("role", Error::NameMalformed { what: "a role" })),
    })
}
