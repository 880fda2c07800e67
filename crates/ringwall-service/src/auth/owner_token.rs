//! The first token, in a file next to the database that only the server's user can read.
//!
//! Anyone who can read the data directory controls the server anyway. An existing file is not
//! changed; if its token is not in the database, because the database is new, the token is added.

use std::path::Path;

use ringwall_record::{Digest, Holder, Store};

use crate::auth::private_file;
use crate::auth::token::{NewToken, create, record_text};
use crate::blocking;
use crate::error::Error;

const FILE: &str = "owner.token";
const BY: &str = "first_start";

/// Returns the hash of the token.
pub(crate) async fn ensure(store: &Store, data: &Path) -> Result<Digest, Error> {
    let new = || NewToken { holder: Holder::Owner, label: Some(FILE.to_owned()), expires_at: None };
    let path = data.join(FILE);
    let reading = path.clone();
    // An empty file counts as missing; otherwise an empty token would have the rights of the owner.
    match blocking::in_place(move || private_file::read(&reading).map_err(failed)).await? {
        Some(text) => {
            let hash = Digest::of(text.as_bytes());
            if store.token_by_hash(&hash).await?.is_none() {
                record_text(store, &text, new(), BY).await?;
            }
            Ok(hash)
        }
        None => {
            // Recorded before the file is written, so that the file never contains a token that is
            // not accepted.
            let (_, text) = create(store, new(), BY).await?;
            let hash = Digest::of(text.as_bytes());
            blocking::in_place(move || private_file::write(&path, &text).map_err(failed)).await?;
            Ok(hash)
        }
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::start("read or write the owner's token, owner.token in the data directory")(source.into())
}
