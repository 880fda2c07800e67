//! Which files a session has, and which have come since, without going through it where that is known.
//!
//! A directory in which no name has come or gone since a moment has the names of that moment. So what was found is kept, for
//! the sessions that were used last, with how each directory looked. It is a hint for the session's own user alone.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::time::{ClockId, Timespec};

use crate::error::Error;
use crate::project::Directory;

use super::open::Tree;
use super::walk::{Step, walk};

impl Tree {
    /// Every regular file of the tree, or nothing if there are more than so many names.
    pub(crate) fn names(&self, most: usize) -> Result<Option<Arc<Names>>, Error> {
        if let Some(known) = self.known_names() {
            return Ok(Some(known));
        }
        let (mut files, mut seen) = (BTreeSet::new(), 0);
        let mut marks = Marks::begin();
        let tops = self.tops();
        for top in &tops {
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
        let names = (seen <= most).then(|| Arc::new(Names { files, marks }));
        if let ([_], Some(names)) = (tops.as_slice(), &names) {
            self.workspace().names_memory().keep(names);
        }
        Ok(names)
    }

    /// What it is known to have without going through it.
    pub(crate) fn known_names(&self) -> Option<Arc<Names>> {
        let tops = self.tops();
        let [top] = tops.as_slice() else { return None };
        let known = self.workspace().names_memory().find(mark(&rustix::fs::fstat(top).ok()?))?;
        known.marks.hold(top).then_some(known)
    }

    /// Which regular files have come since, sorted; nothing if there are more than so many names.
    pub(crate) fn new_since(&self, before: &Names, most: usize) -> Result<Option<Vec<String>>, Error> {
        if let [top] = self.tops().as_slice()
            && before.marks.hold(top)
        {
            return Ok(Some(Vec::new()));
        }
        let now = self.names(most)?;
        Ok(now.map(|now| now.files.iter().filter(|name| !before.files.contains(*name)).cloned().collect()))
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

/// Which directory it is, and when it was last changed, which the kernel alone says.
type Mark = ((u64, u64), (i64, i64));

/// More of them take as long as going through.
const MAX_MARKS: usize = 32;
/// A change that comes this soon after another may have the same time on older kernels.
const TICK_MS: i64 = 100;

impl Names {
    pub fn files(&self) -> &BTreeSet<String> {
        &self.files
    }

    /// Whether all these are directories at the top, as far as that is known.
    pub(crate) fn have_directories(&self, wanted: &[&str]) -> bool {
        let Some(directories) = &self.marks.directories else { return false };
        wanted.iter().all(|wanted| directories.iter().any(|(name, _)| name.to_bytes() == wanted.as_bytes()))
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
            (Some(directories), Some(mark)) if directories.len() < MAX_MARKS => {
                directories.push((name.to_owned(), mark));
            }
            _ => self.give_up(),
        }
    }

    fn begun_long_after(&self, (seconds, nanoseconds): (i64, i64)) -> bool {
        let milliseconds = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1000) + nanoseconds / 1_000_000;
        milliseconds(self.begun.tv_sec, self.begun.tv_nsec) > milliseconds(seconds, nanoseconds) + TICK_MS
    }

    fn top(&self) -> Option<Mark> {
        self.directories.as_ref()?.first().map(|(_, mark)| *mark)
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
    ((status.st_dev, status.st_ino), (status.st_ctime, i64::try_from(status.st_ctime_nsec).unwrap_or_default()))
}

/// What sessions are known to have. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamesMemory {
    /// The one used last comes last.
    kept: Arc<Mutex<Vec<Arc<Names>>>>,
}

/// As many as are at work at once.
const MAX_KEPT: usize = 128;
/// Of one with more names than this going through is not the longest part of anything; all together take some megabytes.
const MAX_FILES: usize = 200;

impl NamesMemory {
    /// What was kept of the directory with this mark.
    fn find(&self, top: Mark) -> Option<Arc<Names>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().rposition(|names| names.marks.top() == Some(top))?;
        let found = kept.remove(place);
        kept.push(Arc::clone(&found));
        Some(found)
    }

    fn keep(&self, names: &Arc<Names>) {
        let Some((top, _)) = names.marks.top() else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|other| other.marks.top().is_none_or(|(other, _)| other != top));
        if names.files.len() <= MAX_FILES {
            if kept.len() >= MAX_KEPT {
                kept.remove(0);
            }
            kept.push(Arc::clone(names));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::session::files::Session;
    use crate::workspaces::{Owner, Workspace, Workspaces};

    const MAX_COUNT: usize = 100;

    fn workspace(directory: &Path) -> Workspace {
        let workspaces = Workspaces::open(&directory.join("w")).unwrap();
        workspaces.workspace(&"u".parse().unwrap(), &"a".parse().unwrap(), Owner::server()).unwrap()
    }

    fn session(workspace: &Workspace) -> Session {
        let session = workspace.session(&"s".parse().unwrap()).unwrap();
        session.furnish().unwrap();
        session
    }

    /// Gone through again until nothing in it is young.
    fn settled(session: &Session) -> Arc<Names> {
        let begun = Instant::now();
        loop {
            let names = session.names(MAX_COUNT).unwrap().unwrap();
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
        let session = session(&workspace(directory.path()));
        let place = |name: &str| session.work().path().join(name);
        fs::write(place("data/old"), "x").unwrap();
        let before = settled(&session);
        let since = |before: &Names| session.new_since(before, MAX_COUNT).unwrap();
        assert!(before.marks.hold(session.work()));
        assert_eq!(since(&before), Some(Vec::new()));
        assert!(session.tree().known_names().is_some_and(|known| Arc::ptr_eq(&known, &before)), "it is kept");
        assert!(before.have_directories(&["data", "output"]) && !before.have_directories(&["data", "top"]));
        // What is written into a file that was there makes no name.
        fs::write(place("data/old"), "more").unwrap();
        assert!(before.marks.hold(session.work()));
        for (number, name) in ["top", "output/one", "data/two"].into_iter().enumerate() {
            fs::write(place(name), "x").unwrap();
            assert!(!before.marks.hold(session.work()) && session.tree().known_names().is_none(), "{name}");
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
        let session = session(&workspace(directory.path()));
        assert!(session.names(MAX_COUNT).unwrap().unwrap().marks.directories.is_none(), "its directories are young");
        settled(&session);
        fs::create_dir(session.work().path().join("data/deep")).unwrap();
        let before = session.names(MAX_COUNT).unwrap().unwrap();
        assert!(before.marks.directories.is_none());
        fs::write(session.work().path().join("data/deep/new"), "x").unwrap();
        assert_eq!(session.new_since(&before, MAX_COUNT).unwrap().unwrap(), ["data/deep/new"]);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_old() {
        let marks = Marks { directories: Some(Vec::new()), begun: Timespec { tv_sec: 1000, tv_nsec: 500_000_000 } };
        for (changed, is_old) in [((1000, 399_000_000), true), ((1000, 401_000_000), false), ((2000, 0), false)] {
            assert_eq!(marks.begun_long_after(changed), is_old, "{changed:?}");
        }
    }

    /// One whose files are gone is as good as new, also where its directory has the inode of another.
    #[test]
    fn what_was_kept_of_another_is_not_told() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = workspace(directory.path());
        let old = session(&workspace);
        fs::write(old.work().path().join("old"), "x").unwrap();
        settled(&old);
        workspace.remove_session(&"s".parse().unwrap()).unwrap();
        let new = session(&workspace);
        assert!(new.tree().known_names().is_none());
        assert!(new.names(MAX_COUNT).unwrap().unwrap().files().is_empty());
    }

    #[test]
    fn those_used_last_are_kept() {
        let memory = NamesMemory::default();
        let named = |number: usize, files: usize| {
            let mark = ((0, number as u64), (0, 0));
            let marks = Marks {
                directories: Some(vec![(CString::default(), mark)]),
                begun: Timespec { tv_sec: 0, tv_nsec: 0 },
            };
            (mark, Arc::new(Names { files: (0..files).map(|file| file.to_string()).collect(), marks }))
        };
        for number in 0..=MAX_KEPT {
            memory.keep(&named(number, 1).1);
            assert!(memory.find(named(0, 1).0).is_some(), "it is used");
        }
        assert!(memory.find(named(1, 1).0).is_none() && memory.find(named(2, 1).0).is_some());
        assert_eq!(memory.kept.lock().unwrap().len(), MAX_KEPT);
        // One that has grown is forgotten.
        memory.keep(&named(0, MAX_FILES + 1).1);
        assert!(memory.find(named(0, 1).0).is_none());
    }
}
