//! Which files there are: every regular file beneath a directory, sorted, as paths that can be given back.

use rustix::fs::FileType;

use crate::error::Error;

use super::find::{Links, explain, kind_of};
use super::open::Tree;
use super::path::AgentPath;
use super::refusal::Refusal;
use super::walk::{Found, Step, walk};

/// More than any quota leaves room for by default; a list of them is about 100 MB of JSON.
const MAX_LISTED: usize = 1_000_000;

impl Tree {
    /// Every regular file beneath a directory, relative to it, sorted. A file is the only one of itself, and what is not
    /// there has none.
    pub fn list(&self, path: &AgentPath) -> Result<Listing, Error> {
        self.list_with(path, |found| match found.kind {
            FileType::RegularFile => Some(found.path.to_owned()),
            _ => None,
        })
    }

    /// The same with directories, whose names end with a slash.
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
        mut name: impl FnMut(&Found<'_>) -> Option<String>,
    ) -> Result<Listing, Error> {
        let nothing = |prefix: String| Listing { prefix, paths: Vec::new() };
        let (located, status) = match self.locate(path, Links::Followed) {
            Err(Error::Refused(Refusal::Missing(_))) => return Ok(nothing(path.plain())),
            outcome => outcome?,
        };
        match kind_of(&status) {
            FileType::Directory => {}
            FileType::RegularFile => return Ok(Listing { prefix: path.plain(), paths: vec![String::new()] }),
            _ => return Ok(nothing(path.plain())),
        }
        let mut paths = Vec::new();
        walk(&located, |found| {
            paths.extend(name(found));
            if paths.len() <= MAX_LISTED { Step::On } else { Step::End }
        })
        .map_err(|errno| explain(path, errno))?;
        if paths.len() > MAX_LISTED {
            return Err(Refusal::TooMany { path: path.given().to_owned(), most: MAX_LISTED }.into());
        }
        paths.sort_unstable();
        Ok(Listing { prefix: path.plain(), paths })
    }

    /// Whether there is a directory at a path.
    pub fn has_directory(&self, path: &AgentPath) -> Result<bool, Error> {
        match self.locate(path, Links::Followed) {
            Ok((_, status)) => Ok(kind_of(&status) == FileType::Directory),
            Err(Error::Refused(Refusal::Missing(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The files beneath a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    prefix: String,
    paths: Vec<String>,
}

impl Listing {
    /// Relative to what was listed.
    pub fn relative(self) -> Vec<String> {
        self.paths
    }

    /// From the workspace on: `files/…`, `skills/…`.
    pub fn whole(self) -> Vec<String> {
        let Self { prefix, paths } = self;
        let whole = |path: String| if path.is_empty() { prefix.clone() } else { format!("{prefix}/{path}") };
        paths.into_iter().map(whole).collect()
    }
}
