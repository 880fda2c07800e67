//! The first token, in a file beside the database that only the server's own user can read.
//!
//! Whoever can read the data directory owns the server anyway. A file that is there is left as it is; if the database
//! has never heard of its token, because it is a new one, it learns it.

use std::path::Path;

use ringwall_record::{Digest, Holder, Store};

use crate::auth::private_file;
use crate::auth::token::{NewToken, create, record_text};
use crate::blocking;
use crate::error::Error;

const FILE: &str = "owner.token";
const BY: &str = "first_start";

/// Gives the hash of the token.
pub(crate) async fn ensure(store: &Store, data: &Path) -> Result<Digest, Error> {
    let new = || NewToken { holder: Holder::Owner, label: Some(FILE.to_owned()), expires_at: None };
    let path = data.join(FILE);
    let reading = path.clone();
    // An empty file is none: it would make an owner of everybody who sends an empty token.
    match blocking::in_place(move || private_file::read(&reading).map_err(failed)).await? {
        Some(text) => {
            let hash = Digest::of(text.as_bytes());
            if store.token_by_hash(&hash).await?.is_none() {
                record_text(store, &text, new(), BY).await?;
            }
            Ok(hash)
        }
        None => {
            // On record first: a file with a token that opens nothing would be believed.
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
