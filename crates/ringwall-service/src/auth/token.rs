//! Tokens: a text that opens, of which only the hash is ever stored; and who somebody is who shows one.

use ringwall_record::{
    Cursor, Database, Digest, HeadKey, Holder, Limit, Page, Revocation, Store, Timestamp, Token, TokenId,
};
use rustix::rand::GetRandomFlags;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::open::Auth;
use crate::service::{Service, now};

const PREFIX: &str = "rw_";
/// Who makes tokens at a command line, in the record.
const COMMAND_LINE: &str = "command_line";

/// A token that is wanted.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub holder: Holder,
    pub label: Option<String>,
    pub expires_at: Option<Timestamp>,
}

impl Service {
    /// Who this is.
    pub async fn authenticate(&self, token: Option<&str>) -> Result<Principal, Error> {
        match self.inner.auth {
            Auth::Disabled => return Ok(Principal::new("nobody", Holder::Owner)),
            Auth::Tokens => {}
        }
        let text = token.ok_or(Error::Unauthenticated)?;
        self.holder_of(&Digest::of(text.as_bytes())).await
    }

    /// Whose token this is, while it opens anything.
    pub(crate) async fn holder_of(&self, hash: &Digest) -> Result<Principal, Error> {
        match self.inner.store.token_by_hash(hash).await? {
            Some(token) if token.is_valid(now()) => Ok(Principal::new(token.id.as_str(), token.holder)),
            Some(_) | None => Err(Error::Unauthenticated),
        }
    }

    /// Whether whoever was let in once would be let in now: for what lasts longer than a request.
    pub async fn authenticate_again(&self, by: &Principal) -> Result<(), Error> {
        match self.inner.auth {
            Auth::Disabled => return Ok(()),
            Auth::Tokens => {}
        }
        let id: TokenId = by.caller().parse().map_err(|_| Error::Unauthenticated)?;
        let found = self.inner.store.token(&id).await?;
        found.filter(|token| token.is_valid(now())).map(drop).ok_or(Error::Unauthenticated)
    }

    /// Gives the token and its text, which nobody can learn again. Operators make tokens for users and agents.
    pub async fn create_token(&self, by: &Principal, new: NewToken) -> Result<(Token, String), Error> {
        match new.holder {
            Holder::Owner | Holder::Operator => by.require_owner("make a token of this role")?,
            Holder::User(_) | Holder::Agent(..) => by.require_operator("make tokens")?,
        }
        create(&self.inner.store, new, by.caller()).await
    }

    /// Newest first.
    pub async fn tokens(&self, by: &Principal, limit: Limit, cursor: Option<Cursor>) -> Result<Page<Token>, Error> {
        by.require_operator("list tokens")?;
        Ok(self.inner.store.tokens(limit, cursor).await?)
    }

    pub async fn revoke_token(&self, by: &Principal, id: &TokenId) -> Result<Revocation, Error> {
        by.require_owner("revoke tokens")?;
        match self.inner.store.revoke_token(id, now(), by.caller()).await? {
            Revocation::Unknown => Err(Error::NotFound { what: format!("token {id}") }),
            Revocation::LastOwner => Err(Error::LastOwner),
            revoked @ (Revocation::Recorded | Revocation::AlreadyRevoked(_)) => Ok(revoked),
        }
    }
}

/// Makes a token without a server, or beside one that runs, for a caller that can open its database and read its key.
pub async fn create_token_offline(database: Database, key: HeadKey, new: NewToken) -> Result<(Token, String), Error> {
    let store = Store::open(database, Some(key)).await?;
    let created = match store.require_own_head().await {
        Ok(()) => create(&store, new, COMMAND_LINE).await,
        Err(error) => Err(Error::start("write a token to the record")(error.into())),
    };
    store.close().await;
    created
}

pub(crate) async fn create(store: &Store, new: NewToken, by: &str) -> Result<(Token, String), Error> {
    let text = format!("{PREFIX}{}", random_digits::<32>()?);
    let token = record_text(store, &text, new, by).await?;
    Ok((token, text))
}

/// Records that this text opens.
pub(crate) async fn record_text(store: &Store, text: &str, new: NewToken, by: &str) -> Result<Token, Error> {
    check_names(&new.holder)?;
    let id: TokenId = format!("t_{}", random_digits::<16>()?).parse()?;
    let created_at = now();
    let token = ringwall_record::NewToken {
        id: id.clone(),
        hash: Digest::of(text.as_bytes()),
        holder: new.holder.clone(),
        label: new.label.clone(),
        created_at,
        created_by: by.to_owned(),
        expires_at: new.expires_at,
    };
    store.create_token(token).await?;
    Ok(Token {
        id,
        holder: new.holder,
        label: new.label,
        created_at,
        created_by: by.to_owned(),
        expires_at: new.expires_at,
        revoked_at: None,
    })
}

/// A token of somebody who could never have a workspace would be of no use.
fn check_names(holder: &Holder) -> Result<(), Error> {
    let (user, agent) = match holder {
        Holder::Owner | Holder::Operator => (None, None),
        Holder::User(user) => (Some(user), None),
        Holder::Agent(user, agent) => (Some(user), Some(agent)),
    };
    if let Some(user) = user {
        user.as_str().parse::<ringwall_workspace::UserId>()?;
    }
    if let Some(agent) = agent {
        agent.as_str().parse::<ringwall_workspace::AgentId>()?;
    }
    Ok(())
}

pub(crate) fn random_digits<const BYTES: usize>() -> Result<String, Error> {
    let mut bytes = [0; BYTES];
    let count = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()));
    match count {
        Ok(count) if count == BYTES => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        // So few bytes come whole or not at all; a short answer would make a token that can be guessed.
        Ok(_) => Err(Error::Runtime { message: "could not get enough random numbers".to_owned() }),
        Err(errno) => Err(Error::runtime("get random numbers from the kernel", &errno)),
    }
}
