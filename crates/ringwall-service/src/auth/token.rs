//! Tokens: creation and recording. Only the hash of a token is stored.
//!
//! The first token is the owner's, in the file `owner.token` of the data directory. Anyone who can
//! read that directory controls the server anyway. An existing file is not changed; if its token is
//! not in the database, because the database is new, the token is added.

use std::path::Path;

use ringwall_ids::{TokenId, random_digits};
use ringwall_record::{Database, Digest, HeadKey, Holder, Store, Timestamp, Token};

use crate::auth::private_file;
use crate::blocking;
use crate::error::Error;
use crate::time::now;

const PREFIX: &str = "rw_";
/// The recorded author of tokens created on the command line.
const COMMAND_LINE: &str = "command_line";
/// The file of the owner's token, and the recorded author of that token.
const OWNER_FILE: &str = "owner.token";
const FIRST_START: &str = "first_start";

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
        Err(error) => Err(Error::start("write a token to the record")(error)),
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
async fn record_text(store: &Store, text: &str, new: NewToken, by: &str) -> Result<Token, Error> {
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

/// Reads or creates the owner's token and returns its hash.
pub(crate) async fn ensure_owner_token(store: &Store, data: &Path) -> Result<Digest, Error> {
    let failed = |source: std::io::Error| {
        Error::start("read or write the owner's token, owner.token in the data directory")(source)
    };
    let new = || NewToken { holder: Holder::Owner, label: Some(OWNER_FILE.to_owned()), expires_at: None };
    let path = data.join(OWNER_FILE);
    // An empty file counts as missing; otherwise an empty token would have the rights of the owner.
    match blocking::in_place(|| private_file::read(&path).map_err(failed)).await? {
        Some(text) => {
            let hash = Digest::of(text.as_bytes());
            if store.token_by_hash(&hash).await?.is_none() {
                record_text(store, &text, new(), FIRST_START).await?;
            }
            Ok(hash)
        }
        None => {
            // Recorded before the file is written, so that the file never contains a token that is
            // not accepted.
            let (_, text) = create(store, new(), FIRST_START).await?;
            let hash = Digest::of(text.as_bytes());
            blocking::in_place(|| private_file::write(&path, &text).map_err(failed)).await?;
            Ok(hash)
        }
    }
}
