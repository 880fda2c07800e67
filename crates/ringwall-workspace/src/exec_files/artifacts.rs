//! Reads what an exec left (the list of files, one file, or a part of its output) and removes it.
//!
//! The server wrote these files, but paths come from clients, so they are looked up without
//! following symlinks and only regular files are opened. Files of a running exec can be read as far
//! as they are written.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use ringwall_ids::ExecId;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::begin;
use crate::exec_files::finish::{ArtifactFile, MANIFEST, META, Manifest};
use crate::exec_files::output::{Stream, read_part};
use crate::fs::beneath;
use crate::fs::erase::{erase, erase_in_staging};
use crate::fs::listing::{MAX_NAMES, Walk};
use crate::fs::read::{file_size, read_digest};
use crate::project::Project;
use crate::relative_path::RelativePath;

/// Larger than any manifest: 4 MiB of escaped paths and 10,000 hashes.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024 * 1024;

/// The limit of collected files, and four files of the server.
const MAX_LISTED: usize = MAX_NAMES + 4;

#[derive(Debug)]
pub struct Artifact {
    pub file: File,
    pub size: u64,
}

/// A part of stdout or stderr.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputPart {
    pub bytes: Vec<u8>,
    /// Length of the whole output so far.
    pub total: u64,
}

impl Project {
    /// Lists every file of an exec except the manifest, sorted by path. Reads the manifest or, if
    /// there is none because the exec is running or the server crashed, the directory.
    pub fn artifacts(&self, exec: &ExecId) -> Result<Vec<ArtifactFile>, Error> {
        let directory = self.open_exec_dir(exec)?;
        let listed = match read_manifest(&directory) {
            Ok(Some(manifest)) => Ok(manifest.files),
            Ok(None) => list_directory(&directory),
            Err(error) => Err(error),
        };
        listed.map_err(|source| Error::ListArtifacts { exec: exec.clone(), source })
    }

    /// Opens one file of an exec for reading.
    pub fn open_artifact(&self, exec: &ExecId, path: &RelativePath) -> Result<Artifact, Error> {
        let directory = self.open_exec_dir(exec)?;
        match beneath::open_regular(&directory, path.as_str()) {
            Ok(Some((_, status))) if is_unwritten(path, file_size(&status)) => {
                Err(Error::ArtifactMissing { exec: exec.clone(), path: path.clone() })
            }
            Ok(Some((file, status))) => Ok(Artifact { size: file_size(&status), file }),
            Ok(None) => Err(Error::ArtifactIrregular { exec: exec.clone(), path: path.clone() }),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(Error::ArtifactMissing { exec: exec.clone(), path: path.clone() }),
            Err(errno) => Err(Error::OpenArtifact { exec: exec.clone(), path: path.clone(), source: errno.into() }),
        }
    }

    /// Reads at most `limit` bytes of output from `offset` on.
    pub fn read_output(&self, exec: &ExecId, stream: Stream, offset: u64, limit: usize) -> Result<OutputPart, Error> {
        let Artifact { file, size } = self.open_artifact(exec, &stream.file_name().parse()?)?;
        let bytes = read_part(&file, size, offset, limit).map_err(|source| Error::ReadOutput {
            exec: exec.clone(),
            stream,
            source,
        })?;
        Ok(OutputPart { bytes, total: size })
    }

    /// Removes the files of an ended exec. Succeeds if there are none.
    pub fn remove_artifacts(&self, exec: &ExecId) -> Result<(), Error> {
        let to_error = |errno: Errno| Error::Remove { subject: format!("the files of {exec}"), source: errno.into() };
        erase_in_staging(self.artifacts_root(), exec.as_str(), self.staging()).map_err(to_error)?;
        // Files of an exec that was never collected or never recorded.
        erase(self.staging(), exec.as_str()).map_err(to_error)?;
        erase(self.staging(), &begin::output_name(exec)).map_err(to_error)
    }

    fn open_exec_dir(&self, exec: &ExecId) -> Result<OwnedFd, Error> {
        let in_artifacts = || beneath::open_directory(self.artifacts_root(), exec.as_str());
        // Output in `.staging` may be moved between the two lookups, hence the third.
        let in_staging = |_| beneath::open_directory(self.staging(), begin::output_name(exec).as_str());
        in_artifacts().or_else(in_staging).or_else(|_| in_artifacts()).map_err(|errno| match errno {
            Errno::NOENT => Error::ExecMissing(exec.clone()),
            _ => Error::ListArtifacts { exec: exec.clone(), source: errno.into() },
        })
    }
}

/// `None` if there is no complete manifest: after a power cut the file may be empty.
fn read_manifest(directory: &OwnedFd) -> io::Result<Option<Manifest>> {
    let file = match beneath::open_regular(directory, MANIFEST) {
        Ok(Some((file, _))) => file,
        Ok(None) | Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes).ok())
}

fn list_directory(directory: &OwnedFd) -> io::Result<Vec<ArtifactFile>> {
    let mut walk = Walk::new(MAX_LISTED);
    walk.enter(directory, b"")?;
    let mut files = Vec::new();
    while let Some(entry) = walk.next() {
        let Ok(path) = RelativePath::from_listing(&entry.path) else {
            continue;
        };
        match entry.kind {
            FileType::Directory => {
                walk.enter(beneath::open_directory(directory, path.as_str())?, &entry.path)?;
            }
            FileType::RegularFile if path.as_str() != MANIFEST => {
                if let Some((file, _)) = beneath::open_regular(directory, path.as_str())? {
                    let (size, hash) = read_digest(file)?;
                    files.push(ArtifactFile { path, size, hash });
                }
            }
            _ => {}
        }
    }
    files.retain(|file| !is_unwritten(&file.path, file.size));
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// True if the file is `meta.json` or `manifest.json` and empty: created before the exec ran and
/// not written yet, or emptied by a power cut.
fn is_unwritten(path: &RelativePath, size: u64) -> bool {
    size == 0 && [META, MANIFEST].contains(&path.as_str())
}
