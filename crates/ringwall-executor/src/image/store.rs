//! The images of one data directory: import, list, find, hold, remove.
//!
//! An image is `<data>/images/<name>/`, with `rootfs/` and `image.json` in it. It is in use, and
//! cannot be removed, while a process holds a shared lock on its directory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_policy::ImageName;
use rustix::fs::{Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::budget::{Budget, Limits};
use super::source::Stream;
use super::staging::{Staging, StoreLock, remove_image};
use super::unpack::Unpacking;
use super::{ImageError, ImageInfo, Progress};

const ROOTFS: &str = "rootfs";
const DESCRIPTION: &str = "image.json";
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

#[derive(Clone, Debug)]
pub struct Store {
    images: PathBuf,
    pub(super) limits: Limits,
}

/// An image that cannot be removed while this value exists.
#[derive(Debug)]
pub struct HeldImage {
    path: PathBuf,
    rootfs: OwnedFd,
    _lock: OwnedFd,
}

impl HeldImage {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for HeldImage {
    /// An O_PATH handle of the root file system, to mount from.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rootfs.as_fd()
    }
}

impl Store {
    /// Does not access the file system.
    pub fn open(data: &Path) -> Self {
        Self { images: data.join("images"), limits: Limits::default() }
    }

    /// Imports an archive from any reader. `source` is recorded as its origin.
    pub fn import(
        &self,
        name: &ImageName,
        source: &str,
        archive: impl Read,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<ImageInfo, ImageError> {
        let name = name.to_string();
        let images = self.make_images()?;
        // Checked before the long unpacking; the rename at the end checks again, atomically.
        if rustix::fs::statat(&images, name.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(ImageError::Exists { name });
        }
        let stream = Stream::open(archive)?;
        let staging = Staging::new(images).map_err(|error| self.failed("prepare an import in", error))?;
        let root = self.make_root(staging.directory())?;
        let budget = staging
            .directory()
            .try_clone()
            .and_then(|directory| Ok(Budget::new(self.limits, directory)?))
            .map_err(|source| self.failed("measure the free space of", source))?;
        let contents = Unpacking::new(root, staging.directory(), budget, progress)
            .map_err(|source| self.failed("prepare an import in", source))?
            .run(stream)?;
        let info = ImageInfo {
            name: name.clone(),
            imported_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            source: source.to_owned(),
            bytes: contents.bytes,
            entries: contents.entries,
            skipped: contents.skipped,
        };
        describe(staging.directory(), &info).map_err(|source| self.failed("describe the image in", source))?;
        match staging.publish(&name) {
            Ok(()) => Ok(info),
            Err(Errno::EXIST) => Err(ImageError::Exists { name }),
            Err(error) => Err(self.failed("put the image in place in", error)),
        }
    }

    /// All images, by name.
    pub fn list(&self) -> Result<Vec<ImageInfo>, ImageError> {
        self.names()?.into_iter().filter_map(|name| self.describe_one(&name).transpose()).collect()
    }

    /// The root file system of an image, which may be removed at any time; boxes use `hold`.
    pub fn find(&self, name: &ImageName) -> Result<PathBuf, ImageError> {
        self.open_image(&name.to_string()).map(|_| self.images.join(name.to_string()).join(ROOTFS))
    }

    /// The root file system of an image, which cannot be removed while the value exists.
    pub fn hold(&self, name: &ImageName) -> Result<HeldImage, ImageError> {
        let name = name.to_string();
        let lock = self.open_image(&name)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            // Locked exclusively: it is being removed.
            Err(Errno::WOULDBLOCK) => return Err(self.unknown(name)),
            Err(error) => return Err(self.failed("lock an image in", error)),
        }
        let rootfs = rustix::fs::openat(&lock, ROOTFS, DIRECTORY | OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|error| self.failed("open the root file system of an image in", error))?;
        Ok(HeldImage { path: self.images.join(name).join(ROOTFS), rootfs, _lock: lock })
    }

    /// Removes an image that no box uses.
    pub fn remove(&self, name: &ImageName) -> Result<(), ImageError> {
        let name = name.to_string();
        let Some(images) = self.open_images()? else {
            return Err(self.unknown(name));
        };
        // The lock keeps the name from being reused between opening and renaming.
        let lock = StoreLock::take(&images).map_err(|error| self.failed("lock", error))?;
        let directory = self.open_image(&name)?;
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ImageError::InUse { name }),
            Err(error) => return Err(self.failed("lock an image in", error)),
        }
        remove_image(&images, &name, lock).map_err(|error| self.failed("remove an image from", error))
    }

    fn names(&self) -> Result<Vec<String>, ImageError> {
        let Some(images) = self.open_images()? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        let mut listing = Dir::read_from(&images).map_err(|error| self.failed("list", error))?;
        while let Some(entry) = listing.read() {
            let entry = entry.map_err(|error| self.failed("list", error))?;
            // Names of hidden directories and of foreign files are not valid image names.
            if let Ok(name) = entry.file_name().to_str()
                && name.parse::<ImageName>().is_ok()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// `None` if the image was removed since it was listed.
    fn describe_one(&self, name: &str) -> Result<Option<ImageInfo>, ImageError> {
        let directory = match self.open_image(name) {
            Err(ImageError::Unknown { .. }) => return Ok(None),
            outcome => outcome?,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&directory, DESCRIPTION, flags, Mode::empty()) {
            Ok(file) => serde_json::from_reader(std::io::BufReader::new(File::from(file)))
                .map(Some)
                .map_err(|source| ImageError::Description { name: name.to_owned(), source }),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("read the description of an image in", error)),
        }
    }

    fn open_image(&self, name: &str) -> Result<OwnedFd, ImageError> {
        let Some(images) = self.open_images()? else {
            return Err(self.unknown(name.to_owned()));
        };
        match rustix::fs::openat(images, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(directory) => Ok(directory),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(self.unknown(name.to_owned())),
            Err(error) => Err(self.failed("open an image in", error)),
        }
    }

    fn open_images(&self) -> Result<Option<OwnedFd>, ImageError> {
        match rustix::fs::open(&self.images, DIRECTORY, Mode::empty()) {
            Ok(images) => Ok(Some(images)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("open", error)),
        }
    }

    fn make_images(&self) -> Result<OwnedFd, ImageError> {
        std::fs::create_dir_all(&self.images).map_err(|source| self.failed("create", source))?;
        rustix::fs::open(&self.images, DIRECTORY, Mode::empty()).map_err(|error| self.failed("open", error))
    }

    fn make_root(&self, staging: &OwnedFd) -> Result<OwnedFd, ImageError> {
        let make = || {
            rustix::fs::mkdirat(staging, ROOTFS, Mode::RWXU)?;
            let root = rustix::fs::openat(staging, ROOTFS, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
            rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755))?;
            Ok(root)
        };
        make().map_err(|error: Errno| self.failed("prepare an import in", error))
    }

    fn unknown(&self, name: String) -> ImageError {
        let known = self.names().unwrap_or_default();
        ImageError::Unknown { name, known }
    }

    fn failed(&self, operation: &'static str, source: impl Into<std::io::Error>) -> ImageError {
        ImageError::Store { operation, path: self.images.clone(), source: source.into() }
    }
}

fn describe(staging: &OwnedFd, info: &ImageInfo) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(staging, DESCRIPTION, flags, Mode::from_raw_mode(0o644))?;
    let mut file = File::from(file);
    serde_json::to_writer_pretty(&mut file, info)?;
    file.write_all(b"\n")?;
    file.sync_all()
}
