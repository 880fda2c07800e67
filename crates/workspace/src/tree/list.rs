//! Which files there are: every regular file beneath a directory, sorted, as paths that can be given back.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::time::{ClockId, Timespec};

use crate::error::Error;
use crate::project::Directory;

use super::find::{Links, explain, kind_of};
use super::open::Tree;
use super::path::AgentPath;
use super::refusal::Refusal;
use super::walk::{Found, Step, walk};

/// More than any quota leaves room for by default; a list of them is about 100 MB of JSON.
const LISTED_MAX: usize = 1_000_000;

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
            if paths.len() <= LISTED_MAX { Step::On } else { Step::End }
        })
        .map_err(|errno| explain(path, errno))?;
        if paths.len() > LISTED_MAX {
            return Err(Refusal::TooMany { path: path.given().to_owned(), most: LISTED_MAX }.into());
        }
        paths.sort_unstable();
        Ok(Listing { prefix: path.plain(), paths })
    }

    /// Every regular file of the tree, or nothing if there are more than so many names.
    pub(crate) fn names(&self, most: usize) -> Result<Option<Names>, Error> {
        let (mut files, mut seen) = (BTreeSet::new(), 0);
        let mut marks = Marks::begin();
        for top in self.tops() {
            marks.add(c"", rustix::fs::fstat(top));
            walk(top, |found| {
                seen += 1;
                match found.kind {
                    FileType::RegularFile if seen <= most => drop(files.insert(found.path.to_owned())),
                    FileType::Directory if found.path.contains('/') => marks.give_up(),
                    FileType::Directory => marks.add(found.name, look(found.directory, found.name)),
                    _ => {}
                }
                if seen <= most { Step::On } else { Step::End }
            })
            .map_err(|errno| Error::UseTree(errno.into()))?;
        }
        Ok((seen <= most).then_some(Names { files, marks }))
    }

    /// Which regular files have come since, sorted; nothing if there are more than so many names.
    pub(crate) fn new_since(&self, before: &Names, most: usize) -> Result<Option<Vec<String>>, Error> {
        if let [top] = self.tops().as_slice()
            && before.marks.hold(top)
        {
            return Ok(Some(Vec::new()));
        }
        let now = self.names(most)?;
        Ok(now.map(|now| now.files.into_iter().filter(|name| !before.files.contains(name)).collect()))
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

/// The regular files of a tree at one moment.
#[derive(Debug)]
pub struct Names {
    files: BTreeSet<String>,
    marks: Marks,
}

/// How the directories of a tree looked when it was gone through, by which it can be told that no name has come or gone
/// since, without going through it again. Only for a top and what lies directly in it: no link can be on the way to those.
#[derive(Debug)]
struct Marks {
    /// Nothing where it cannot be told.
    directories: Option<Vec<(CString, Mark)>>,
    /// When the going through began.
    begun: Timespec,
}

/// Its inode, and when it was last changed, which the kernel alone says.
type Mark = (u64, (i64, i64));

/// More of them take as long as going through.
const MARKS_MOST: usize = 32;
/// A change that comes this soon after another may have the same time on older kernels.
const TICK_MS: i64 = 100;

impl Names {
    pub fn files(&self) -> &BTreeSet<String> {
        &self.files
    }
}

impl Marks {
    fn begin() -> Self {
        Self { directories: Some(Vec::new()), begun: rustix::time::clock_gettime(ClockId::RealtimeCoarse) }
    }

    fn give_up(&mut self) {
        self.directories = None;
    }

    fn add(&mut self, name: &CStr, status: rustix::io::Result<Stat>) {
        let mark = status.ok().map(|status| mark(&status)).filter(|(_, changed)| self.begun_long_after(*changed));
        match (&mut self.directories, mark) {
            (Some(directories), Some(mark)) if directories.len() < MARKS_MOST => {
                directories.push((name.to_owned(), mark));
            }
            _ => self.give_up(),
        }
    }

    fn begun_long_after(&self, (seconds, nanoseconds): (i64, i64)) -> bool {
        let milliseconds = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1000) + nanoseconds / 1_000_000;
        milliseconds(self.begun.tv_sec, self.begun.tv_nsec) > milliseconds(seconds, nanoseconds) + TICK_MS
    }

    /// Whether every directory is what it was.
    fn hold(&self, top: &Directory) -> bool {
        let Some(directories) = &self.directories else { return false };
        directories.iter().all(|(name, before)| {
            let status = if name.is_empty() { rustix::fs::fstat(top) } else { look(top.as_fd(), name) };
            status.is_ok_and(|status| mark(&status) == *before)
        })
    }
}

fn look(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn mark(status: &Stat) -> Mark {
    (status.st_ino, (status.st_ctime, i64::try_from(status.st_ctime_nsec).unwrap_or_default()))
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::session::Session;
    use crate::workspaces::{Owner, Workspaces};

    const MOST: usize = 100;

    fn session(directory: &Path) -> Session {
        let workspaces = Workspaces::open(&directory.join("w")).unwrap();
        let workspace = workspaces.workspace(&"u".parse().unwrap(), &"a".parse().unwrap(), Owner::server()).unwrap();
        let session = workspace.session(&"s".parse().unwrap()).unwrap();
        session.furnish().unwrap();
        session
    }

    /// Gone through again until nothing in it is young.
    fn settled(session: &Session) -> Names {
        let begun = Instant::now();
        loop {
            let names = session.names(MOST).unwrap().unwrap();
            if names.marks.directories.is_some() {
                return names;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "its directories stay young");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_has_come_since_is_found_wherever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(directory.path());
        let place = |name: &str| session.work().path().join(name);
        fs::write(place("data/old"), "x").unwrap();
        let before = settled(&session);
        let since = |before: &Names| session.new_since(before, MOST).unwrap();
        assert!(before.marks.hold(session.work()));
        assert_eq!(since(&before), Some(Vec::new()));
        // What is written into a file that was there makes no name.
        fs::write(place("data/old"), "more").unwrap();
        assert!(before.marks.hold(session.work()));
        for (number, name) in ["top", "output/one", "data/two"].into_iter().enumerate() {
            fs::write(place(name), "x").unwrap();
            assert!(!before.marks.hold(session.work()), "{name}");
            assert_eq!(since(&before).unwrap().len(), number + 1, "{name}");
        }
        assert_eq!(since(&before).unwrap(), ["data/two", "output/one", "top"]);
        // One directory in the place of another, with the same names.
        let before = settled(&session);
        fs::rename(place("output"), place("temp/output")).unwrap();
        fs::create_dir(place("output")).unwrap();
        assert!(!before.marks.hold(session.work()));
        assert_eq!(since(&before).unwrap(), ["temp/output/one"]);
    }

    /// A directory inside of another is not looked at by itself, and one that is young may be changed unseen.
    #[test]
    fn where_times_do_not_tell_all_is_gone_through() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(directory.path());
        assert!(session.names(MOST).unwrap().unwrap().marks.directories.is_none(), "its directories are young");
        settled(&session);
        fs::create_dir(session.work().path().join("data/deep")).unwrap();
        let before = session.names(MOST).unwrap().unwrap();
        assert!(before.marks.directories.is_none());
        fs::write(session.work().path().join("data/deep/new"), "x").unwrap();
        assert_eq!(session.new_since(&before, MOST).unwrap().unwrap(), ["data/deep/new"]);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_old() {
        let marks = Marks { directories: Some(Vec::new()), begun: Timespec { tv_sec: 1000, tv_nsec: 500_000_000 } };
        for (changed, is_old) in [((1000, 399_000_000), true), ((1000, 401_000_000), false), ((2000, 0), false)] {
            assert_eq!(marks.begun_long_after(changed), is_old, "{changed:?}");
        }
    }
}
