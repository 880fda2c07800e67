//! The cache of skills in the skills directory, valid until their files change.
//!
//! Every lookup checks the directory, so a saved file counts at once, but a manifest is read and
//! validated again only if its file changed. There is no watcher: a check costs microseconds and
//! misses nothing. An invalid manifest affects only its own skill. The lock covers a single lookup
//! in the map and no file access.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::error::Error;
use super::folder::{Folder, Looked, Stamp};
use super::manifest::{InvalidManifest, Judge};
use super::reasons::printable;
use super::shipped::{Builtin, SCHEMA};
use super::skill::Skill;

/// The skills directory of a server.
#[derive(Debug)]
pub struct Skills {
    root: PathBuf,
    judge: Judge,
    shipped: BTreeMap<&'static str, Judged>,
    /// By folder. Entries without a folder are removed.
    kept: Mutex<BTreeMap<String, Kept>>,
}

type Judged = Result<Arc<Skill>, Arc<InvalidManifest>>;

#[derive(Debug)]
struct Kept {
    stamp: Stamp,
    trust: Trust,
    judged: Judged,
}

/// Whether an unchanged stamp proves an unchanged file; see `Stamp::is_settled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Settled,
    Fresh,
}

/// All skills and invalid manifests, sorted by id
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Catalogue {
    pub skills: Vec<Arc<Skill>>,
    pub invalid: Vec<Arc<InvalidManifest>>,
}

/// The result of a lookup.
#[derive(Debug, Clone)]
pub enum Found {
    Skill(Arc<Skill>),
    Invalid(Arc<InvalidManifest>),
    Unknown,
}

impl Skills {
    /// Creates the directory if it is missing. The shipped skills always exist.
    pub fn open(root: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(root).map_err(|source| Error::MakeRoot { path: root.to_owned(), source })?;
        Folder::open(root)?;
        let judge = Judge::new()?;
        let shipped = Builtin::ALL.map(|builtin| {
            let judged = judge.judge(builtin.id(), builtin.manifest().as_bytes());
            (builtin.id(), judged.map(Arc::new).map_err(Arc::new))
        });
        Ok(Self { root: root.to_owned(), judge, shipped: shipped.into(), kept: Mutex::default() })
    }

    /// Writes the manifests' schema into the directory for people and editors. If that fails, the
    /// skills are still served.
    pub fn publish_schema(&self) -> Result<(), Error> {
        Folder::open(&self.root)?.write_schema(SCHEMA)
    }

    /// All current skills.
    pub fn list(&self) -> Result<Catalogue, Error> {
        self.list_at(SystemTime::now())
    }

    /// One current skill.
    pub fn find(&self, id: &str) -> Result<Found, Error> {
        let folder = Folder::open(&self.root)?;
        let judged = self.look(&folder, id, SystemTime::now());
        Ok(match judged.or_else(|| self.shipped.get(id).cloned()) {
            Some(Ok(skill)) => Found::Skill(skill),
            Some(Err(invalid)) => Found::Invalid(invalid),
            None => Found::Unknown,
        })
    }

    fn list_at(&self, now: SystemTime) -> Result<Catalogue, Error> {
        let folder = Folder::open(&self.root)?;
        let names = folder.names()?;
        self.kept().retain(|name, _| names.binary_search(name).is_ok());
        let mut all: BTreeMap<&str, Judged> = self.shipped.iter().map(|(id, judged)| (*id, judged.clone())).collect();
        for name in &names {
            if let Some(judged) = self.look(&folder, name, now) {
                all.insert(name, judged);
            }
        }
        let mut catalogue = Catalogue { skills: Vec::new(), invalid: Vec::new() };
        for judged in all.into_values() {
            match judged {
                Ok(skill) => catalogue.skills.push(skill),
                Err(invalid) => catalogue.invalid.push(invalid),
            }
        }
        Ok(catalogue)
    }

    /// The content of a folder, validated again if it changed.
    fn look(&self, folder: &Folder, name: &str, now: SystemTime) -> Option<Judged> {
        let unreadable = |reason| {
            let id = printable(name, 255);
            Some(Err(Arc::new(InvalidManifest { id, reasons: vec![reason] })))
        };
        let file = match folder.look(name) {
            Looked::File(file) => file,
            Looked::Nothing => {
                self.kept().remove(name);
                return None;
            }
            Looked::Unreadable(reason) => {
                self.kept().remove(name);
                return unreadable(reason);
            }
        };
        let stamp = file.stamp;
        if let Some(known) = self.known(name, stamp) {
            return Some(known);
        }
        let text = match file.read() {
            Ok(text) => text,
            Err(reason) => return unreadable(reason),
        };
        let judged = self.judge.judge(name, &text).map(Arc::new).map_err(Arc::new);
        let trust = if stamp.is_settled(now) { Trust::Settled } else { Trust::Fresh };
        // A concurrent lookup that read an older file stores its stamp, which the next lookup does
        // not match.
        self.kept().insert(name.to_owned(), Kept { stamp, trust, judged: judged.clone() });
        Some(judged)
    }

    /// The cached result for this state of the file.
    fn known(&self, name: &str, stamp: Stamp) -> Option<Judged> {
        let kept = self.kept();
        let known = kept.get(name).filter(|known| known.stamp == stamp && known.trust == Trust::Settled)?;
        Some(known.judged.clone())
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.kept.lock()
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
