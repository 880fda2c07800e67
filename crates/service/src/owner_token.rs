//! The first token, in a file beside the database that only the server's own user can read.
//!
//! Whoever can read the data directory owns the server anyway. A file that is there is left as it is; if the database
//! has never heard of its token, because it is a new one, it learns it.

use std::io::{Read, Write};
use std::path::Path;

use record::{Digest, Holder, Store};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::service::Service;
use crate::token::{NewToken, create, record_text};

const FILE: &str = "owner.token";
const BY: &str = "first_start";
const LONGEST: u64 = 4096;

pub(crate) async fn ensure(store: &Store, data: &Path) -> Result<(), Error> {
    let new = || NewToken { holder: Holder::Owner, label: Some(FILE.to_owned()), expires_at: None };
    let path = data.join(FILE);
    let reading = path.clone();
    match Service::blocking(move || read(&reading)).await? {
        Some(text) => {
            if store.token_by_hash(&Digest::of(text.as_bytes())).await?.is_none() {
                record_text(store, &text, new(), BY).await?;
            }
            Ok(())
        }
        None => {
            // On record first: a file with a token that opens nothing would be believed.
            let (_, text) = create(store, new(), BY).await?;
            Service::blocking(move || write(&path, &text)).await
        }
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(|errno| failed(errno.into()))?,
    };
    let mut text = String::new();
    std::fs::File::from(file).take(LONGEST).read_to_string(&mut text).map_err(failed)?;
    let text = text.trim();
    // An empty file would make an owner of everybody who sends an empty token.
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let private = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, private).map_err(|errno| failed(errno.into()))?;
    rustix::fs::fchmod(&file, private).map_err(|errno| failed(errno.into()))?;
    let mut file = std::fs::File::from(file);
    writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(failed)
}

fn failed(source: std::io::Error) -> Error {
    Error::start("read or write the owner's token, owner.token in the data directory")(source.into())
}
