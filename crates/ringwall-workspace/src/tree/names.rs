//! Lists the regular files of a session and finds new ones, without a walk if no directory has
//! changed.
//!
//! A directory whose change time is the same has the same names. The result of a walk is cached
//! with the change times of the directories, for the sessions that were used last. The result is
//! used only for information to the session's own user.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::time::{ClockId, Timespec};

use crate::error::Error;
use crate::project::Directory;

use super::list::{WalkStep, walk};
use super::open::Tree;

impl Tree {
    /// Every regular file of the tree. `None` if there are more than `max` names.
    pub fn names(&self, max: usize) -> Result<Option<Arc<Names>>, Error> {
        if let Some(known) = self.known_names() {
            return Ok(Some(known));
        }
        let (mut files, mut seen) = (BTreeSet::new(), 0);
        let mut marks = Marks::begin();
        let sections = self.sections();
        for top in &sections {
            marks.add(c"", rustix::fs::fstat(top));
            walk(top, |found| {
                seen += 1;
                match found.kind {
                    FileType::RegularFile if seen <= max => drop(files.insert(found.path.to_owned())),
                    FileType::Directory if found.path.contains('/') => marks.disable(),
                    FileType::Directory => marks.add(found.name, stat(found.directory, found.name)),
                    _ => {}
                }
                if seen <= max { WalkStep::Continue } else { WalkStep::Stop }
            })
            .map_err(|errno| Error::UseTree(errno.into()))?;
        }
        let names = (seen <= max).then(|| Arc::new(Names { files, marks }));
        if let ([_], Some(names)) = (sections.as_slice(), &names) {
            self.workspace().shared().names.insert(names);
        }
        Ok(names)
    }

    /// The cached names, if all directories are unchanged.
    pub(crate) fn known_names(&self) -> Option<Arc<Names>> {
        let sections = self.sections();
        let [top] = sections.as_slice() else { return None };
        let known = self.workspace().shared().names.find(mark(&rustix::fs::fstat(top).ok()?))?;
        known.marks.are_unchanged(top).then_some(known)
    }

    /// The regular files that were created since `before`, sorted. `None` if there are more than
    /// `max` names.
    pub(crate) fn new_since(&self, before: &Names, max: usize) -> Result<Option<Vec<String>>, Error> {
        if let [top] = self.sections().as_slice()
            && before.marks.are_unchanged(top)
        {
            return Ok(Some(Vec::new()));
        }
        let now = self.names(max)?;
        Ok(now.map(|now| now.files.iter().filter(|name| !before.files.contains(*name)).cloned().collect()))
    }
}

/// The regular files of a tree at the time of a walk.
#[derive(Debug)]
pub struct Names {
    files: BTreeSet<String>,
    marks: Marks,
}

/// The change times of a tree's directories at a walk; while they are the same, no name has been
/// added or removed. Covers only the top and its direct subdirectories, whose paths cannot lead
/// through a symlink.
#[derive(Debug)]
struct Marks {
    /// `None` if changes cannot be detected by times.
    directories: Option<Vec<(CString, Mark)>>,
    /// Start of the walk.
    began: Timespec,
}

/// Identity of a directory and its change time, which only the kernel sets.
type Mark = ((u64, u64), (i64, i64));

/// Checking more directories takes as long as a walk.
const MAX_MARKS: usize = 32;
/// On kernels before 6.13 two changes in quick succession can have the same time.
const MIN_AGE_MS: i64 = 100;

impl Names {
    pub fn files(&self) -> &BTreeSet<String> {
        &self.files
    }

    /// True if all of `wanted` are known to be directories at the top.
    pub(crate) fn have_directories(&self, wanted: &[&str]) -> bool {
        let Some(directories) = &self.marks.directories else { return false };
        wanted.iter().all(|wanted| directories.iter().any(|(name, _)| name.to_bytes() == wanted.as_bytes()))
    }
}

impl Marks {
    fn begin() -> Self {
        Self { directories: Some(Vec::new()), began: rustix::time::clock_gettime(ClockId::RealtimeCoarse) }
    }

    fn disable(&mut self) {
        self.directories = None;
    }

    fn add(&mut self, name: &CStr, status: rustix::io::Result<Stat>) {
        let mark = status.ok().map(|status| mark(&status)).filter(|(_, changed)| self.began_well_after(*changed));
        match (&mut self.directories, mark) {
            (Some(directories), Some(mark)) if directories.len() < MAX_MARKS => {
                directories.push((name.to_owned(), mark));
            }
            _ => self.disable(),
        }
    }

    fn began_well_after(&self, (seconds, nanoseconds): (i64, i64)) -> bool {
        let milliseconds = |seconds: i64, nanoseconds: i64| seconds.saturating_mul(1000) + nanoseconds / 1_000_000;
        milliseconds(self.began.tv_sec, self.began.tv_nsec) > milliseconds(seconds, nanoseconds) + MIN_AGE_MS
    }

    fn top(&self) -> Option<Mark> {
        self.directories.as_ref()?.first().map(|(_, mark)| *mark)
    }

    /// True if every directory is unchanged.
    fn are_unchanged(&self, top: &Directory) -> bool {
        let Some(directories) = &self.directories else { return false };
        directories.iter().all(|(name, before)| {
            let status = if name.is_empty() { rustix::fs::fstat(top) } else { stat(top.as_fd(), name) };
            status.is_ok_and(|status| mark(&status) == *before)
        })
    }
}

fn stat(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn mark(status: &Stat) -> Mark {
    ((status.st_dev, status.st_ino), (status.st_ctime, i64::try_from(status.st_ctime_nsec).unwrap_or_default()))
}

/// The names of the sessions that were used last.
#[derive(Debug, Default)]
pub(crate) struct NamesCache {
    /// The last used is at the end.
    cached: Mutex<Vec<Arc<Names>>>,
}

/// Number of cached sessions.
const MAX_CACHED_SESSIONS: usize = 128;
/// Sessions with more files are not cached, which bounds the cache to some megabytes.
const MAX_CACHED_NAMES: usize = 200;

impl NamesCache {
    /// The cached names of the tree whose top has this mark.
    fn find(&self, top: Mark) -> Option<Arc<Names>> {
        let mut cached = self.cached.lock();
        let index = cached.iter().rposition(|names| names.marks.top() == Some(top))?;
        let found = cached.remove(index);
        cached.push(Arc::clone(&found));
        Some(found)
    }

    fn insert(&self, names: &Arc<Names>) {
        let Some((top, _)) = names.marks.top() else { return };
        let mut cached = self.cached.lock();
        cached.retain(|other| other.marks.top().is_none_or(|(other, _)| other != top));
        if names.files.len() <= MAX_CACHED_NAMES {
            if cached.len() >= MAX_CACHED_SESSIONS {
                cached.remove(0);
            }
            cached.push(Arc::clone(names));
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
        session.create_directories().unwrap();
        session
    }

    /// Walks until no directory has changed recently.
    fn settled(session: &Session) -> Arc<Names> {
        let began = Instant::now();
        loop {
            let names = session.tree().names(MAX_COUNT).unwrap().unwrap();
            if names.marks.directories.is_some() {
                return names;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "its directories keep changing");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn new_files_are_found_in_all_directories() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&workspace(directory.path()));
        let host_path = |name: &str| session.work().path().join(name);
        fs::write(host_path("data/old"), "x").unwrap();
        let before = settled(&session);
        let since = |before: &Names| session.new_since(before, MAX_COUNT).unwrap();
        assert!(before.marks.are_unchanged(session.work()));
        assert_eq!(since(&before), Some(Vec::new()));
        assert!(session.tree().known_names().is_some_and(|known| Arc::ptr_eq(&known, &before)), "cached");
        assert!(before.have_directories(&["data", "output"]) && !before.have_directories(&["data", "top"]));
        // Writing to an existing file adds no name.
        fs::write(host_path("data/old"), "more").unwrap();
        assert!(before.marks.are_unchanged(session.work()));
        for (number, name) in ["top", "output/one", "data/two"].into_iter().enumerate() {
            fs::write(host_path(name), "x").unwrap();
            assert!(!before.marks.are_unchanged(session.work()) && session.tree().known_names().is_none(), "{name}");
            assert_eq!(since(&before).unwrap().len(), number + 1, "{name}");
        }
        assert_eq!(since(&before).unwrap(), ["data/two", "output/one", "top"]);
        // A directory is replaced by another with the same name.
        let before = settled(&session);
        fs::rename(host_path("output"), host_path("temp/output")).unwrap();
        fs::create_dir(host_path("output")).unwrap();
        assert!(!before.marks.are_unchanged(session.work()));
        assert_eq!(since(&before).unwrap(), ["temp/output/one"]);
    }

    /// A nested directory has no mark, and one that changed recently may change again with the same
    /// time.
    #[test]
    fn nested_or_recently_changed_directories_are_walked() {
        let directory = tempfile::tempdir().unwrap();
        let session = session(&workspace(directory.path()));
        assert!(
            session.tree().names(MAX_COUNT).unwrap().unwrap().marks.directories.is_none(),
            "its directories changed recently"
        );
        settled(&session);
        fs::create_dir(session.work().path().join("data/deep")).unwrap();
        let before = session.tree().names(MAX_COUNT).unwrap().unwrap();
        assert!(before.marks.directories.is_none());
        fs::write(session.work().path().join("data/deep/new"), "x").unwrap();
        assert_eq!(session.new_since(&before, MAX_COUNT).unwrap().unwrap(), ["data/deep/new"]);
    }

    #[test]
    fn directory_changed_after_walk_began_is_not_old() {
        let marks = Marks { directories: Some(Vec::new()), began: Timespec { tv_sec: 1000, tv_nsec: 500_000_000 } };
        for (changed, is_old) in [((1000, 399_000_000), true), ((1000, 401_000_000), false), ((2000, 0), false)] {
            assert_eq!(marks.began_well_after(changed), is_old, "{changed:?}");
        }
    }

    /// The new session's directory may have the inode of the removed one.
    #[test]
    fn recreated_session_does_not_use_cached_names() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = workspace(directory.path());
        let old = session(&workspace);
        fs::write(old.work().path().join("old"), "x").unwrap();
        settled(&old);
        workspace.remove_session(&"s".parse().unwrap()).unwrap();
        let new = session(&workspace);
        assert!(new.tree().known_names().is_none());
        assert!(new.tree().names(MAX_COUNT).unwrap().unwrap().files().is_empty());
    }

    #[test]
    fn cache_keeps_last_used_sessions() {
        let memory = NamesCache::default();
        let named = |number: usize, files: usize| {
            let mark = ((0, number as u64), (0, 0));
            let marks = Marks {
                directories: Some(vec![(CString::default(), mark)]),
                began: Timespec { tv_sec: 0, tv_nsec: 0 },
            };
            (mark, Arc::new(Names { files: (0..files).map(|file| file.to_string()).collect(), marks }))
        };
        for number in 0..=MAX_CACHED_SESSIONS {
            memory.insert(&named(number, 1).1);
            assert!(memory.find(named(0, 1).0).is_some(), "last used");
        }
        assert!(memory.find(named(1, 1).0).is_none() && memory.find(named(2, 1).0).is_some());
        assert_eq!(memory.cached.lock().len(), MAX_CACHED_SESSIONS);
        // A session with too many files is removed from the cache.
        memory.insert(&named(0, MAX_CACHED_NAMES + 1).1);
        assert!(memory.find(named(0, 1).0).is_none());
    }
}
