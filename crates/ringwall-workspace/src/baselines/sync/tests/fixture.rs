//! Fixture for tests of checkouts: workspaces and baselines on a real file system.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Seek, Write};
use std::path::{Path, PathBuf};

use ringwall_ids::AgentId;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::baselines::{Baselines, Layer, SyncState, Update};
use crate::skills::{ArchiveLimits, SkillArchive, SkillName};
use crate::tree::Tree;
use crate::workspaces::{Owner, Workspaces};

const LIMITS: ArchiveLimits = ArchiveLimits { bytes: 1 << 20, entries: 100 };
/// Owner of the workspaces if the tests run as root.
const BOX_ID: u32 = 54_322;

pub(crate) struct Fixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) workspaces: Workspaces,
    pub(crate) baselines: Baselines,
}

pub(crate) fn agent() -> AgentId {
    "agent".parse().unwrap()
}

pub(crate) fn name(text: &str) -> SkillName {
    text.parse().unwrap()
}

pub(crate) fn owner() -> Owner {
    if rustix::process::geteuid().is_root() { Owner { uid: BOX_ID, gid: BOX_ID } } else { Owner::server() }
}

fn zipped(files: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in files {
        let mode = if name.ends_with(".sh") { 0o755 } else { 0o644 };
        writer.start_file(*name, SimpleFileOptions::default().unix_permissions(mode)).unwrap();
        writer.write_all(data.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

impl Fixture {
    pub(crate) fn new() -> Self {
        // In memory if possible, because syncs to a disk would dominate the time of these tests.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let workspaces = Workspaces::open(&directory.path().join("workspaces")).unwrap();
        let baselines = Baselines::open(&directory.path().join("baselines")).unwrap();
        Self { directory, workspaces, baselines }
    }

    pub(crate) fn tree(&self, user: &str) -> Tree {
        self.workspaces.workspace(&user.parse().unwrap(), &agent(), owner()).unwrap().tree().unwrap()
    }

    pub(crate) fn skills(&self, user: &str) -> PathBuf {
        self.directory.path().join("workspaces").join(user).join("agent/skills")
    }

    pub(crate) fn publish(&self, files: &[(&str, &str)]) {
        let mut upload = self.baselines.upload_file().unwrap();
        upload.write_all(&zipped(files)).unwrap();
        upload.rewind().unwrap();
        self.baselines.upload(&agent(), upload, LIMITS).unwrap();
    }

    pub(crate) fn sync_state(&self, tree: &Tree) -> SyncState {
        self.baselines.sync_state(&agent(), tree.workspace()).unwrap()
    }

    /// Folder, layer and pending update of each skill.
    pub(crate) fn layers(&self, tree: &Tree) -> Vec<(String, Layer, Option<Update>)> {
        let listed = self.baselines.list_layered(&agent(), tree).unwrap();
        listed.into_iter().map(|one| (one.folder, one.layer, one.update)).collect()
    }

    pub(crate) fn sync(&self, tree: &Tree) {
        self.baselines.sync(&agent(), tree).unwrap();
        assert_eq!(self.sync_state(tree), SyncState::UpToDate);
    }

    pub(crate) fn upload(&self, tree: &Tree, files: &[(&str, &str)]) {
        let mut upload = tree.workspace().upload_file().unwrap();
        upload.write_all(&zipped(files)).unwrap();
        upload.rewind().unwrap();
        self.baselines
            .install(&agent(), &tree.check_skill_archive(upload, LIMITS).and_then(SkillArchive::unpack).unwrap())
            .unwrap();
    }

    /// Entries of a skill's directory in the baselines: versions and their file lists.
    pub(crate) fn versions(&self, skill: &str) -> Vec<String> {
        list(&self.directory.path().join("baselines/agent").join(skill))
    }
}

pub(crate) fn list(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// All files beneath a directory with their contents.
pub(crate) fn contents(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

pub(crate) fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}
