//! Scratch directories of the mode's user, on a path that every user can traverse. They are removed when dropped.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};

use super::actor::Identity;

/// A directory that belongs to one user and is removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: tempfile::TempDir,
    owner: Identity,
}

impl Scratch {
    /// A new directory in `/tmp`.
    pub fn new(owner: Identity) -> io::Result<Self> {
        Self::inside(Path::new("/tmp"), owner)
    }

    /// A new directory in `parent`, which every user must be able to traverse.
    pub fn inside(parent: &Path, owner: Identity) -> io::Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("rw-").permissions(fs::Permissions::from_mode(0o755)).tempdir_in(parent)?;
        give(directory.path(), owner)?;
        Ok(Self { directory, owner })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a directory in it, with the same owner.
    pub fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.join(name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        give(&path, self.owner)?;
        Ok(path)
    }

    /// Writes a file in it or below it, with the same owner.
    pub fn file(&self, name: &str, content: &[u8], mode: u32) -> io::Result<PathBuf> {
        let path = self.join(name);
        fs::write(&path, content)?;
        give(&path, self.owner)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }
}

/// Makes `owner` the owner of `path`, without following a link.
pub fn give(path: &Path, owner: Identity) -> io::Result<()> {
    let (user, group) = owner.id();
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(rustix::fs::CWD, path, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)), flags)?;
    Ok(())
}

/// Sixteen random bytes as text: a mark that occurs nowhere by chance.
pub fn token() -> io::Result<String> {
    use io::Read;
    let mut bytes = [0_u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
