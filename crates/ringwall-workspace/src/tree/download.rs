//! Downloads a file as it is, or a directory as a ZIP that is created while it is sent.
//!
//! Names in the ZIP are relative to the directory and sorted. It contains regular files and
//! directories; entries that disappear or change their type meanwhile are skipped. The ZIP is
//! neither stored on disk nor held in memory as a whole, and no lock is held while a slow client
//! receives it.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::FileType;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, result::ZipError};

use crate::error::Error;
use crate::fs::read::file_size;

use super::error::FilesError;
use super::find::{LinkCounts, Links, file_type};
use super::open::Tree;
use super::path::AgentPath;

/// The fastest level costs a few percent in size.
const FAST: i64 = 1;
/// Files of this size need ZIP64.
const LARGE: u64 = u32::MAX as u64;

/// Directories get this mode instead of their own, so that the unpacked tree is accessible.
const DIRECTORY: u32 = 0o755;

/// A file or directory to download.
#[derive(Debug)]
pub enum Download {
    File { file: File, size: u64 },
    Directory(Archive),
}

/// A directory to be sent as a ZIP.
#[derive(Debug)]
pub struct Archive {
    tree: Tree,
    directory: AgentPath,
    name: String,
    paths: Vec<String>,
}

impl Tree {
    /// Opens what is at a path.
    pub fn download(&self, path: &AgentPath) -> Result<Download, Error> {
        let (_, status) = self.locate(path, Links::Followed)?;
        if file_type(&status) != FileType::Directory {
            let (file, status) = self.open_file(path, Links::Followed)?;
            return Ok(Download::File { file, size: file_size(&status) });
        }
        let paths = self.list_with_directories(path)?.relative();
        let plain = path.plain();
        let name = plain.rsplit_once('/').map_or(plain.as_str(), |(_, name)| name).to_owned();
        Ok(Download::Directory(Archive { tree: self.clone(), directory: path.clone(), name, paths }))
    }
}

impl Archive {
    /// Name of the directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the ZIP to `to`.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut zip = ZipWriter::new_stream(to);
        let mut names = LinkCounts::default();
        for path in &self.paths {
            if path.ends_with('/') {
                zip.add_directory(path, SimpleFileOptions::default().unix_permissions(DIRECTORY)).map_err(plain)?;
                continue;
            }
            let Ok(whole) = self.directory.join(path) else { continue };
            let (file, status) = match self.tree.open_one_of_many(&whole, &mut names) {
                Ok(opened) => opened,
                Err(Error::Files(error)) if is_gone(&error) => continue,
                Err(error) => return Err(io::Error::other(error)),
            };
            let size = file_size(&status);
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Deflated)
                .compression_level(Some(FAST))
                .unix_permissions(status.st_mode & 0o777)
                .large_file(size >= LARGE);
            zip.start_file(path, options).map_err(plain)?;
            io::copy(&mut file.take(size), &mut zip)?;
        }
        zip.finish().map(drop).map_err(plain)
    }
}

/// True if the entry disappeared or may not be downloaded.
fn is_gone(error: &FilesError) -> bool {
    matches!(
        error,
        FilesError::Missing(_) | FilesError::Irregular(_) | FilesError::IsDirectory(_) | FilesError::OutOfScope(_)
    )
}

fn plain(error: ZipError) -> io::Error {
    error.into()
}
