//! Decides about each entry: create it, skip and count it, or abort the import.
//!
//! Owners and extended attributes are ignored. Modes lose their special bits and give the owner
//! enough permissions to copy and remove everything. The directories on which a box mounts must be
//! plain directories, because a symlink there would redirect the mount.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::budget::Budget;
use super::entries::{Entries, Entry, Kind};
use super::name::Depth;
use super::source::Stream;
use super::times::{DirectoryTimes, timestamps};
use super::tree::{Tree, failed};
use super::{ImageError, Progress, Skipped, erase};

const CHUNK: usize = 128 * 1024;

/// Mount points of a box, each with the handling of a missing directory.
const MOUNT_POINTS: [(&str, Missing); 8] = [
    ("dev", Missing::Create(0o755)),
    ("proc", Missing::Create(0o755)),
    ("sys", Missing::Ignore),
    ("tmp", Missing::Create(0o1777)),
    ("etc", Missing::Create(0o755)),
    ("workspace", Missing::Create(0o755)),
    ("run", Missing::Ignore),
    ("home", Missing::Create(0o755)),
];

#[derive(Clone, Copy)]
enum Missing {
    Create(u32),
    Ignore,
}

/// Result of unpacking.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contents {
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) skipped: Skipped,
    programs: u64,
}

pub(super) struct Unpacking<'p> {
    tree: Tree,
    times: DirectoryTimes,
    budget: Budget,
    contents: Contents,
    progress: &'p mut dyn FnMut(Progress),
    chunk: Vec<u8>,
}

impl<'p> Unpacking<'p> {
    /// `root` is an empty directory; `scratch` is outside of it, on the same file system.
    pub(super) fn new(
        root: OwnedFd,
        scratch: impl AsFd,
        budget: Budget,
        progress: &'p mut dyn FnMut(Progress),
    ) -> std::io::Result<Self> {
        Ok(Self {
            tree: Tree::new(root),
            times: DirectoryTimes::new(scratch)?,
            budget,
            contents: Contents::default(),
            progress,
            chunk: vec![0; CHUNK],
        })
    }

    pub(super) fn run(mut self, stream: Stream<'_>) -> Result<Contents, ImageError> {
        let mut entries = Entries::new(stream);
        let mut empty = true;
        while let Some(entry) = entries.next()? {
            empty = false;
            self.extract(entry, &mut entries)?;
            self.report_progress(&entries);
        }
        if empty {
            return Err(ImageError::Empty);
        }
        entries.finish()?;
        self.finish()
    }

    fn extract(&mut self, entry: Entry, entries: &mut Entries<'_>) -> Result<(), ImageError> {
        let name = &entry.name;
        self.budget.charge(entry.stored)?;
        match name.top() {
            (b"dev", Depth::Beneath) => {
                self.contents.skipped.dev_content += 1;
                return Ok(());
            }
            (top, Depth::Itself) => refuse_mount_point(top, &entry.kind)?,
            (_, Depth::Beneath) => {}
        }
        match &entry.kind {
            // We create the root ourselves, accessible to the box's user; the archive's mode is
            // ignored.
            Kind::Directory if name.is_root() => {}
            Kind::Unknown => self.contents.skipped.unknown += 1,
            Kind::Device => self.contents.skipped.devices += 1,
            Kind::Pipe => self.contents.skipped.pipes += 1,
            _ if name.is_root() => {
                return Err(ImageError::Conflict { name: "/".into(), problem: "the root must be a directory" });
            }
            Kind::Directory => {
                let mode = self.keep_mode(entry.mode, 0o1777) | 0o700;
                self.tree.make_directory(name, mode)?;
                self.times.note(name.as_bytes(), entry.mtime).map_err(|error| failed(name, error))?;
                self.contents.entries += 1;
            }
            Kind::File => {
                self.extract_file(&entry, entries)?;
                self.contents.entries += 1;
            }
            Kind::Symlink(target) => {
                self.tree.make_symlink(name, target, entry.mtime)?;
                self.contents.entries += 1;
            }
            Kind::HardLink(target) => {
                self.tree.make_hard_link(name, target)?;
                self.contents.entries += 1;
            }
        }
        Ok(())
    }

    fn extract_file(&mut self, entry: &Entry, entries: &mut Entries<'_>) -> Result<(), ImageError> {
        let name = &entry.name;
        let mut file = File::from(self.tree.create_file(name)?);
        loop {
            let count = entries.read_content(&mut self.chunk)?;
            if count == 0 {
                break;
            }
            file.write_all(&self.chunk[..count]).map_err(|error| failed(name, error))?;
            self.contents.bytes += count as u64;
            self.report_progress(entries);
        }
        let mode = self.keep_mode(entry.mode, 0o777) | 0o600;
        if mode & 0o111 != 0 {
            self.contents.programs += 1;
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
            .and_then(|()| rustix::fs::futimens(&file, &timestamps(entry.mtime)))
            .map_err(|error| failed(name, error))
    }

    fn keep_mode(&mut self, mode: u32, kept: u32) -> u32 {
        if mode & 0o7777 & !kept != 0 {
            self.contents.skipped.special_bits += 1;
        }
        mode & kept
    }

    fn report_progress(&mut self, entries: &Entries<'_>) {
        (self.progress)(Progress {
            read: entries.stream().archive_bytes(),
            entries: self.contents.entries,
            bytes: self.contents.bytes,
        });
    }

    /// After the last entry: checks that this is a root file system, sets directory times, and
    /// checks the mount points.
    fn finish(mut self) -> Result<Contents, ImageError> {
        let is_directory = |path: &[u8]| self.tree.open(path, OFlags::PATH | OFlags::DIRECTORY).is_ok();
        if self.contents.programs == 0 && !is_directory(b"bin") && !is_directory(b"usr/bin") {
            return Err(ImageError::NotARoot);
        }
        // Before the mount points are created, which would change the time of the root.
        let tree = &self.tree;
        self.times
            .replay(|path, mtime| {
                match tree.open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) {
                    Ok(directory) => Ok(rustix::fs::futimens(directory, &timestamps(mtime))?),
                    // A later entry replaced the directory.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            })
            .map_err(|source| ImageError::Write { name: "/".into(), source })?;
        for (name, missing) in MOUNT_POINTS {
            check_mount_point(self.tree.root(), name, missing, &mut self.contents.skipped)?;
        }
        Ok(self.contents)
    }
}

fn refuse_mount_point(top: &[u8], kind: &Kind) -> Result<(), ImageError> {
    let found = match kind {
        Kind::Directory => return Ok(()),
        Kind::Symlink(_) => "a symbolic link",
        Kind::File => "a file",
        Kind::HardLink(_) => "a hard link",
        Kind::Device => "a device",
        Kind::Pipe => "a pipe",
        Kind::Unknown => "of an unknown type",
    };
    match MOUNT_POINTS.iter().find(|(name, _)| name.as_bytes() == top) {
        Some((name, _)) => Err(ImageError::MountPoint { name, found }),
        None => Ok(()),
    }
}

/// Checks the mount point on disk, because that is what a mount will find.
fn check_mount_point(
    root: &OwnedFd,
    name: &'static str,
    missing: Missing,
    skipped: &mut Skipped,
) -> Result<(), ImageError> {
    let write = |error: Errno| ImageError::Write { name: name.into(), source: error.into() };
    match rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {}
        Ok(_) => {
            return Err(ImageError::MountPoint { name, found: "not a directory" });
        }
        Err(Errno::NOENT) => {
            let Missing::Create(mode) = missing else {
                return Ok(());
            };
            rustix::fs::mkdirat(root, name, Mode::RWXU).map_err(write)?;
            let directory = open_directory(root, name).map_err(write)?;
            rustix::fs::fchmod(directory, Mode::from_raw_mode(mode)).map_err(write)?;
        }
        Err(error) => return Err(write(error)),
    }
    if name == "dev" {
        // An entry can reach /dev through a link. Leave nothing there, in case the box's own /dev
        // fails.
        let directory = open_directory(root, name).map_err(write)?;
        skipped.dev_content += erase::empty(&directory).map_err(write)?;
    }
    Ok(())
}

fn open_directory(root: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, name, flags, Mode::empty())
}
