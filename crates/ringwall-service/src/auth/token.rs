//! Tokens: creation and recording. Only the hash of a token is stored.

use ringwall_ids::{TokenId, random_digits};
use ringwall_record::{Database, Digest, HeadKey, Holder, Store, Timestamp, Token};

use crate::error::Error;
use crate::time::now;

const PREFIX: &str = "rw_";
/// The recorded author of tokens created on the command line.
const COMMAND_LINE: &str = "command_line";

/// A request for a new token.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub holder: Holder,
    pub label: Option<String>,
    pub expires_at: Option<Timestamp>,
}

/// Creates a token without using a server, also while one is running. Requires access to the
/// database and its key.
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

/// Records `text` as a valid token.
pub(crate) async fn record_text(store: &Store, text: &str, new: NewToken, by: &str) -> Result<Token, Error> {
    let id = TokenId::random()?;
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
