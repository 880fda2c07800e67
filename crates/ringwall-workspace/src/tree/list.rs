//! Lists every regular file beneath a directory, sorted.

use rustix::fs::FileType;

use crate::error::Error;

use super::error::FilesError;
use super::find::{Links, file_type, files_error};
use super::open::Tree;
use super::path::AgentPath;
use super::walk::{WalkEntry, WalkStep, walk};

/// Above the default quota of names. A list of this length has about 100 MB of JSON.
const MAX_LISTED: usize = 1_000_000;

impl Tree {
    /// Lists the regular files beneath a directory, sorted. For a file the list contains the file
    /// itself; for a missing path it is empty.
    pub fn list(&self, path: &AgentPath) -> Result<Listing, Error> {
        self.list_with(path, |found| match found.kind {
            FileType::RegularFile => Some(found.path.to_owned()),
            _ => None,
        })
    }

    /// Like [`Self::list`], with directories too; their names end with a slash.
    pub(super) fn list_with_directories(&self, path: &AgentPath) -> Result<Listing, Error> {
        self.list_with(path, |found| match found.kind {
            FileType::RegularFile => Some(found.path.to_owned()),
            FileType::Directory => Some(format!("{}/", found.path)),
            _ => None,
        })
    }

    fn list_with(
        &self,
        path: &AgentPath,
        mut name: impl FnMut(&WalkEntry<'_>) -> Option<String>,
    ) -> Result<Listing, Error> {
        let nothing = |prefix: String| Listing { prefix, paths: Vec::new() };
        let (located, status) = match self.locate(path, Links::Followed) {
            Err(Error::Files(FilesError::Missing(_))) => return Ok(nothing(path.plain())),
            outcome => outcome?,
        };
        match file_type(&status) {
            FileType::Directory => {}
            FileType::RegularFile => return Ok(Listing { prefix: path.plain(), paths: vec![String::new()] }),
            _ => return Ok(nothing(path.plain())),
        }
        let mut paths = Vec::new();
        walk(&located, |found| {
            paths.extend(name(found));
            if paths.len() <= MAX_LISTED { WalkStep::Continue } else { WalkStep::Stop }
        })
        .map_err(|errno| files_error(path, errno))?;
        if paths.len() > MAX_LISTED {
            return Err(FilesError::TooMany { path: path.given().to_owned(), max: MAX_LISTED }.into());
        }
        paths.sort_unstable();
        Ok(Listing { prefix: path.plain(), paths })
    }

    /// True if there is a directory at a path.
    pub fn has_directory(&self, path: &AgentPath) -> Result<bool, Error> {
        match self.locate(path, Links::Followed) {
            Ok((_, status)) => Ok(file_type(&status) == FileType::Directory),
            Err(Error::Files(FilesError::Missing(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Regular files beneath a directory, or one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    prefix: String,
    paths: Vec<String>,
}

impl Listing {
    /// Paths relative to the listed directory.
    pub fn relative(self) -> Vec<String> {
        self.paths
    }

    /// Paths from the workspace on: `files/…`, `skills/…`.
    pub fn whole(self) -> Vec<String> {
        let Self { prefix, paths } = self;
        let whole = |path: String| if path.is_empty() { prefix.clone() } else { format!("{prefix}/{path}") };
        paths.into_iter().map(whole).collect()
    }
}
