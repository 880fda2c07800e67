//! Taking files along: one as it is, a directory as a zip that is made while it is sent.
//!
//! Names in the zip are relative to the directory. Only regular files and directories are in it, in the order of their names; what goes
//! away or changes its kind meanwhile is left out. Nothing of it is ever on the disk or whole in memory, and no lock is
//! held while somebody reads it slowly.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::FileType;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, result::ZipError};

use crate::error::Error;

use super::find::{Links, NameCounts, kind_of, size_of};
use super::open::Tree;
use super::path::AgentPath;
use super::refusal::Refusal;

/// What speed costs here is a few percent of size.
const FAST: i64 = 1;
/// From here on a zip needs longer numbers.
const LARGE: u64 = u32::MAX as u64;

/// The mode of every directory: what others have taken from theirs would only be in the way elsewhere.
const DIRECTORY: u32 = 0o755;

/// What a path leads to.
#[derive(Debug)]
pub enum Download {
    File { file: File, size: u64 },
    Directory(Archive),
}

/// A directory that is to be sent.
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
        if kind_of(&status) != FileType::Directory {
            let (file, status) = self.open_file(path, Links::Followed)?;
            return Ok(Download::File { file, size: size_of(&status) });
        }
        let paths = self.list_with_directories(path)?.relative();
        let plain = path.plain();
        let name = plain.rsplit_once('/').map_or(plain.as_str(), |(_, name)| name).to_owned();
        Ok(Download::Directory(Archive { tree: self.clone(), directory: path.clone(), name, paths }))
    }
}

impl Archive {
    /// The directory's own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the zip, as far as somebody takes it.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut zip = ZipWriter::new_stream(to);
        let mut names = NameCounts::default();
        for path in &self.paths {
            if path.ends_with('/') {
                zip.add_directory(path, SimpleFileOptions::default().unix_permissions(DIRECTORY)).map_err(plain)?;
                continue;
            }
            let Ok(whole) = self.directory.join(path) else { continue };
            let (file, status) = match self.tree.open_one(&whole, &mut names) {
                Ok(opened) => opened,
                Err(Error::Refused(refusal)) if is_gone(&refusal) => continue,
                Err(error) => return Err(io::Error::other(error)),
            };
            let size = size_of(&status);
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

/// Whether it is only not there any more, or not a file that may be sent.
fn is_gone(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Missing(_) | Refusal::Irregular(_) | Refusal::IsDirectory(_) | Refusal::OutOfScope(_))
}

fn plain(error: ZipError) -> io::Error {
    error.into()
}
