//! The skills directory, opened beneath a handle.
//!
//! It belongs to the operator and boxes cannot reach it. A user who may write one skill must not
//! show the server another file through it, so links are followed inside the directory and never
//! out of it. Devices, FIFOs and files too large for a manifest are refused unread.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::error::Error;

const MANIFEST: &str = "manifest.json";
const SCHEMA_FOLDER: &str = "_schema";
const SCHEMA_FILE: &str = "manifest.schema.json";

const MAX_MANIFEST_BYTES: u64 = 1 << 20;

/// Maximum number of folders; more means that the directory holds other data.
pub(super) const MAX_SKILLS: usize = 4096;

/// Attempts to open a path while concurrent renames interrupt the lookup.
const TRIES: usize = 8;

/// File times advance in steps of a few ms, so two changes in one step look like one. A file that
/// was unchanged for this long before it was read cannot have changed twice in that step.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// Identifies one state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// True if an unchanged stamp, taken at `now`, will prove an unchanged file.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let changed =
            u64::try_from(self.changed.0).map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds + 1));
        changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age >= SETTLED_AFTER))
    }
}

/// The result of looking for a folder's `manifest.json`.
#[derive(Debug)]
pub(super) enum ManifestLookup {
    /// No such folder.
    Missing,
    File(ManifestFile),
    /// Present but not readable, with the reason.
    Unreadable(String),
}

#[derive(Debug)]
pub(super) struct ManifestFile {
    pub(super) stamp: Stamp,
    file: File,
}

impl ManifestFile {
    pub(super) fn read(self) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        // The file may have grown since its size was read.
        match self.file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut text) {
            Ok(_) if text.len() as u64 <= MAX_MANIFEST_BYTES => Ok(text),
            Ok(_) => Err(too_large()),
            Err(error) => Err(format!("{MANIFEST} could not be read: {error}")),
        }
    }
}

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    handle: OwnedFd,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(handle) => Ok(Self { path: path.to_owned(), handle }),
            Err(error) => Err(Error::OpenRoot { path: path.to_owned(), source: error.into() }),
        }
    }

    /// The names of possible skills, sorted. Names with a leading underscore or dot are not skills.
    pub(super) fn names(&self) -> Result<Vec<String>, Error> {
        let failed = |error: Errno| Error::ListRoot { path: self.path.clone(), source: error.into() };
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let may_be_folder =
                matches!(entry.file_type(), FileType::Directory | FileType::Symlink | FileType::Unknown);
            let name = entry.file_name().to_string_lossy();
            if !may_be_folder || !is_skill_name(&name) {
                continue;
            }
            if names.len() == MAX_SKILLS {
                return Err(Error::TooManySkills { path: self.path.clone(), limit: MAX_SKILLS });
            }
            // A name that is not UTF-8 is lossily converted, is not found later and so is no skill.
            names.push(name.into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn find_manifest(&self, name: &str) -> ManifestLookup {
        if !is_skill_name(name) {
            return ManifestLookup::Missing;
        }
        let file = match self.open_beneath(&format!("{name}/{MANIFEST}")) {
            Ok(handle) => File::from(handle),
            Err(Errno::NOTDIR) => return ManifestLookup::Missing,
            Err(Errno::NOENT) => {
                return match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(_) => ManifestLookup::Missing,
                    Ok(_) => ManifestLookup::Unreadable(format!("there is no {MANIFEST}")),
                };
            }
            Err(Errno::XDEV) => {
                return ManifestLookup::Unreadable(format!(
                    "a link leads out of the skills directory; copy {MANIFEST} here"
                ));
            }
            Err(error) => return ManifestLookup::Unreadable(format!("{MANIFEST} could not be opened: {error}")),
        };
        match rustix::fs::fstat(&file) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                ManifestLookup::Unreadable(format!("{MANIFEST} is not a file"))
            }
            Ok(stat) if stat.st_size as u64 > MAX_MANIFEST_BYTES => ManifestLookup::Unreadable(too_large()),
            Ok(stat) => ManifestLookup::File(ManifestFile { stamp: Stamp::of(&stat), file }),
            Err(error) => ManifestLookup::Unreadable(format!("{MANIFEST} could not be looked at: {error}")),
        }
    }

    /// The flags avoid blocking: a FIFO opens without a writer, and a terminal does not become the
    /// controlling one.
    fn open_beneath(&self, path: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut opened = Err(Errno::AGAIN);
        for _ in 0..TRIES {
            opened = rustix::fs::openat2(&self.handle, path, flags, Mode::empty(), resolve);
            if !matches!(opened, Err(Errno::AGAIN)) {
                break;
            }
        }
        opened
    }

    /// Writes the schema for editors if it is missing or differs, by rename, so that no reader sees
    /// half of it.
    pub(super) fn write_schema(&self, text: &str) -> Result<(), Error> {
        let path = self.path.join(SCHEMA_FOLDER).join(SCHEMA_FILE);
        let failed = |source: io::Error| Error::WriteSchema { path: path.clone(), source };
        match rustix::fs::mkdirat(&self.handle, SCHEMA_FOLDER, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.handle, SCHEMA_FOLDER, flags, Mode::empty())
            .map_err(|error| failed(error.into()))?;
        if self.holds(text) {
            return Ok(());
        }
        // Two servers that start together write separate temporary files with the same text.
        let temporary = format!(".{SCHEMA_FILE}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let write = || -> io::Result<()> {
            let mode = Mode::from_raw_mode(0o644);
            File::from(rustix::fs::openat(&folder, &temporary, flags, mode)?).write_all(text.as_bytes())?;
            Ok(rustix::fs::renameat(&folder, &temporary, &folder, SCHEMA_FILE)?)
        };
        write().map_err(failed)
    }

    fn holds(&self, text: &str) -> bool {
        let Ok(handle) = self.open_beneath(&format!("{SCHEMA_FOLDER}/{SCHEMA_FILE}")) else { return false };
        let mut found = Vec::new();
        let read = File::from(handle).take(text.len() as u64 + 1).read_to_end(&mut found);
        read.is_ok() && found == text.as_bytes()
    }
}

/// A single path component, so that a lookup stays in the directory.
fn is_skill_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(['_', '.']) && !name.contains(['/', '\0']) && name.len() <= 255
}

fn too_large() -> String {
    format!("{MANIFEST} is larger than {MAX_MANIFEST_BYTES} bytes")
}
