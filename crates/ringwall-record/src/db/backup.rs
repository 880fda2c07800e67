//! Backs up a SQLite database while it is in use.
//!
//! The copy is written to `PATH.partial` with mode 0600, synced, and renamed to `PATH`; an existing
//! file is never replaced. PostgreSQL databases are backed up with `pg_dump`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::db::database::{Database, create_private};
use crate::db::statement::Statement;
use crate::error::Error;
use crate::store::Store;

impl Store {
    pub async fn backup(&self, path: &Path) -> Result<(), Error> {
        match self.database() {
            Database::Postgres(_) => Err(Error::BackupUnsupported),
            Database::Sqlite(_) => {
                let partial = Partial::create(path)?;
                let name = partial.path.to_str().ok_or_else(|| Error::PathNotUtf8(path.to_owned()))?;
                // `VACUUM INTO` accepts the empty file, which keeps its mode 0600.
                self.readers().rows(Statement::new("write the backup", "VACUUM INTO $1").bind(name)).await?;
                partial.complete(path)
            }
        }
    }
}

/// The unfinished copy. Dropping it removes the file.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn create(path: &Path) -> Result<Self, Error> {
        if rustix::fs::lstat(path).is_ok() {
            return Err(Error::BackupExists(path.to_owned()));
        }
        let mut name = OsString::from(path);
        name.push(".partial");
        let partial = PathBuf::from(name);
        match create_private(&partial) {
            Ok(_) => Ok(Self { path: partial }),
            Err(Errno::EXIST) => Err(Error::BackupExists(partial)),
            Err(errno) => Err(failed("create", &partial)(errno)),
        }
    }

    fn complete(self, path: &Path) -> Result<(), Error> {
        sync(&self.path, OFlags::WRONLY)?;
        match rustix::fs::renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(Error::BackupExists(path.to_owned())),
            Err(errno) => return Err(failed("create", path)(errno)),
        }
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        sync(directory.unwrap_or(Path::new(".")), OFlags::RDONLY | OFlags::DIRECTORY)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `complete` has renamed it this fails with `ENOENT`.
        let _ = rustix::fs::unlink(&self.path);
    }
}

fn sync(path: &Path, flags: OFlags) -> Result<(), Error> {
    let file = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(failed("open", path))?;
    rustix::fs::fsync(file).map_err(failed("write to disk", path))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
    move |errno| Error::File { doing, path: path.to_owned(), source: Arc::new(errno.into()) }
}
