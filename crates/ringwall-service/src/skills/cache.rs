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

use parking_lot::Mutex;
use serde::Serialize;

use super::error::Error;
use super::folder::{Folder, ManifestLookup, Stamp};
use super::manifest::{InvalidManifest, ManifestValidator};
use super::reasons::printable;
use super::shipped::{Builtin, SCHEMA};
use super::skill::Skill;

/// The skills directory of a server.
#[derive(Debug)]
pub struct Skills {
    root: PathBuf,
    validator: ManifestValidator,
    shipped: BTreeMap<&'static str, Validated>,
    /// Results by folder, with the stamp of the file. Holds only files whose stamp is settled.
    /// Entries without a folder are removed.
    kept: Mutex<BTreeMap<String, (Stamp, Validated)>>,
}

type Validated = Result<Arc<Skill>, Arc<InvalidManifest>>;

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
        let validator = ManifestValidator::new()?;
        let shipped = Builtin::ALL.map(|builtin| {
            let validated = validator.validate(builtin.id(), builtin.manifest().as_bytes());
            (builtin.id(), validated.map(Arc::new).map_err(Arc::new))
        });
        Ok(Self { root: root.to_owned(), validator, shipped: shipped.into(), kept: Mutex::default() })
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
        let validated = self.look(&folder, id, SystemTime::now());
        Ok(match validated.or_else(|| self.shipped.get(id).cloned()) {
            Some(Ok(skill)) => Found::Skill(skill),
            Some(Err(invalid)) => Found::Invalid(invalid),
            None => Found::Unknown,
        })
    }

    fn list_at(&self, now: SystemTime) -> Result<Catalogue, Error> {
        let folder = Folder::open(&self.root)?;
        let names = folder.names()?;
        self.kept.lock().retain(|name, _| names.binary_search(name).is_ok());
        let mut all: BTreeMap<&str, Validated> =
            self.shipped.iter().map(|(id, validated)| (*id, validated.clone())).collect();
        for name in &names {
            if let Some(validated) = self.look(&folder, name, now) {
                all.insert(name, validated);
            }
        }
        let mut catalogue = Catalogue { skills: Vec::new(), invalid: Vec::new() };
        for validated in all.into_values() {
            match validated {
                Ok(skill) => catalogue.skills.push(skill),
                Err(invalid) => catalogue.invalid.push(invalid),
            }
        }
        Ok(catalogue)
    }

    /// The content of a folder, validated again if it changed.
    fn look(&self, folder: &Folder, name: &str, now: SystemTime) -> Option<Validated> {
        let unreadable = |reason| {
            let id = printable(name, 255);
            Some(Err(Arc::new(InvalidManifest { id, reasons: vec![reason] })))
        };
        let file = match folder.find_manifest(name) {
            ManifestLookup::File(file) => file,
            ManifestLookup::Missing => {
                self.kept.lock().remove(name);
                return None;
            }
            ManifestLookup::Unreadable(reason) => {
                self.kept.lock().remove(name);
                return unreadable(reason);
            }
        };
        let stamp = file.stamp;
        if let Some((_, known)) = self.kept.lock().get(name).filter(|(known, _)| *known == stamp) {
            return Some(known.clone());
        }
        let text = match file.read() {
            Ok(text) => text,
            Err(reason) => return unreadable(reason),
        };
        let validated = self.validator.validate(name, &text).map(Arc::new).map_err(Arc::new);
        // A concurrent lookup that read an older file stores its stamp, which the next lookup does
        // not match.
        if stamp.is_settled(now) {
            self.kept.lock().insert(name.to_owned(), (stamp, validated.clone()));
        }
        Some(validated)
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
