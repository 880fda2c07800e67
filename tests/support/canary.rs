//! Canaries: host files whose visible properties are compared before and after an attack, from outside of the box.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::scratch::{Scratch, token};

/// A file with random content.
#[derive(Debug)]
pub struct Canary {
    path: PathBuf,
    secret: String,
    before: Fingerprint,
}

/// Properties of the file and its directory that a change would alter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    content: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
    inode: u64,
    links: u64,
    modified: (i64, i64),
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    neighbours: Vec<Vec<u8>>,
}

impl Canary {
    /// Creates the canary in a scratch directory with mode 0644.
    pub fn plant(scratch: &Scratch, name: &str) -> io::Result<Self> {
        let secret = format!("canary-{}", token()?);
        let path = scratch.file(name, secret.as_bytes(), 0o644)?;
        let before = Fingerprint::of(&path)?;
        Ok(Self { path, secret, before })
    }

    /// Creates the canary as another user's file.
    pub fn plant_at(path: PathBuf, owner: (u32, u32)) -> io::Result<Self> {
        let secret = format!("canary-{}", token()?);
        fs::write(&path, &secret)?;
        std::os::unix::fs::chown(&path, Some(owner.0), Some(owner.1))?;
        let before = Fingerprint::of(&path)?;
        Ok(Self { path, secret, before })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as text, for payloads; scratch names are always UTF-8.
    pub fn text(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Takes the fingerprint again, after the test itself changed the directory.
    pub fn settle(&mut self) -> io::Result<()> {
        self.before = Fingerprint::of(&self.path)?;
        Ok(())
    }

    /// Describes the change, if there is one.
    pub fn changed(&self) -> Option<String> {
        match Fingerprint::of(&self.path) {
            Err(error) => Some(format!("{} is gone or unreadable: {error}", self.path.display())),
            Ok(after) if after == self.before => None,
            Ok(after) => Some(format!("{}: {}", self.path.display(), self.before.difference(&after))),
        }
    }
}

impl Fingerprint {
    pub fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        let mut neighbours = Vec::new();
        if let Some(parent) = path.parent() {
            for entry in fs::read_dir(parent)? {
                neighbours.push(entry?.file_name().as_bytes().to_vec());
            }
            neighbours.sort();
        }
        Ok(Self {
            content: fs::read(path)?,
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            inode: metadata.ino(),
            links: metadata.nlink(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            attributes: attributes(path)?,
            neighbours,
        })
    }

    fn difference(&self, after: &Self) -> String {
        let mut parts = Vec::new();
        let mut note = |name: &str, same: bool| {
            if !same {
                parts.push(name.to_owned());
            }
        };
        note("content", self.content == after.content);
        note("mode", self.mode == after.mode);
        note("owner", self.owner == after.owner);
        note("inode", self.inode == after.inode);
        note("link count", self.links == after.links);
        note("modification time", self.modified == after.modified);
        note("extended attributes", self.attributes == after.attributes);
        note("directory entries beside it", self.neighbours == after.neighbours);
        format!("changed: {}", parts.join(", "))
    }
}

fn attributes(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0_u8; 64 * 1024];
    let length = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut found = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 64 * 1024];
        let size = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(size);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
