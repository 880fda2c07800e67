//! Installs uploaded skills and deletes skills.
//!
//! An upload is unpacked into a staging directory that no box can reach. Each skill is then
//! exchanged with the old one by `renameat2`; the old one stays in the staging directory and is
//! removed with it. All skills of an upload are installed, or none:
//!
//! - If an exchange fails, the earlier ones are undone.
//! - Before the first exchange, the files and then a journal are synced to disk. After a crash the
//!   next start of the server finishes the exchanges that the journal names. Without a complete
//!   journal all skills are old.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath::{self, PRIVATE_DIRECTORY, take_ownership};
use crate::fs::durable::{TempDirectory, create_unnamed_file};
use crate::fs::erase::move_to_staging;
use crate::skills::SkillName;
use crate::skills::archive::{ArchiveLimits, CheckedZip};
use crate::skills::unpack::unpack;
use crate::tree::{FilesError, Removed, Section, Tree};
use crate::usage::Usage;
use crate::workspaces::{Owner, Workspace};

const NEW_SKILLS: &str = "new";
const JOURNAL: &str = "journal";
const MAX_JOURNAL_BYTES: u64 = 64 * 1024 * 1024;
/// A box can create and remove the name so fast that neither kind of rename succeeds.
const MAX_SWAP_ATTEMPTS: u32 = 100;

/// The skills to install, with the inodes of their new directories. If the staging directory holds
/// another inode under the name, the exchange was done and that inode is the old skill.
type Journal = BTreeMap<SkillName, u64>;

/// An uploaded ZIP whose headers were checked and whose data was not read yet.
#[derive(Debug)]
pub struct SkillArchive {
    archive: CheckedZip,
    tree: Tree,
}

/// The unpacked skills of one upload. Dropping it deletes the staging directory, which may take a
/// while.
#[derive(Debug)]
pub struct StagedSkills {
    pub(crate) staged: StagingDir,
    tree: Tree,
}

/// A directory in `.staging` with unpacked skills.
#[derive(Debug)]
pub(crate) struct StagingDir {
    directory: TempDirectory,
    pub(crate) new: OwnedFd,
    pub(crate) skills: BTreeSet<SkillName>,
}

impl Workspace {
    /// Creates an empty file for the body of an upload. It has no name, so a crash leaves nothing
    /// behind.
    pub fn upload_file(&self) -> Result<File, Error> {
        create_unnamed_file(self.staging())
    }
}

impl Tree {
    /// Checks an uploaded ZIP. Neither this nor unpacking changes the skills, so no lock is needed.
    pub fn check_skill_archive(&self, archive: File, limits: ArchiveLimits) -> Result<SkillArchive, Error> {
        Ok(SkillArchive { archive: CheckedZip::read(archive, limits)?, tree: self.clone() })
    }

    /// Removes a skill by moving it to `.staging`. The caller may erase it without holding a lock.
    pub fn delete_skill(&self, skill: &SkillName) -> Result<Removed, Error> {
        let error = |errno: Errno| Error::Remove { subject: format!("the skill {skill}"), source: errno.into() };
        let missing = || Error::Files(FilesError::SkillMissing(skill.to_string()));
        let skills = self.section(Section::Skills);
        match beneath::locate(skills, skill.as_str()) {
            Ok((_, status)) if FileType::from_raw_mode(status.st_mode) == FileType::Directory => {}
            Ok(_) | Err(Errno::NOENT | Errno::LOOP) => return Err(missing()),
            Err(errno) => return Err(error(errno)),
        }
        let staging = self.workspace().staging();
        match rename_with_ownership(skills, skill.as_str(), || move_to_staging(skills, skill.as_str(), staging)) {
            Ok(name) => Ok(Removed { workspace: self.workspace().clone(), name, given: skill.to_string() }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(missing()),
            Err(errno) => Err(error(errno)),
        }
    }
}

impl SkillArchive {
    /// Estimates the disk space of the unpacked skills.
    pub fn usage(&self) -> Usage {
        self.archive.usage()
    }

    /// Unpacks the skills into a staging directory. Fails if the data differs from the headers.
    pub fn unpack(self) -> Result<StagedSkills, Error> {
        let workspace = self.tree.workspace();
        let staged = StagingDir::unpack(workspace.staging(), self.archive, workspace.owner())?;
        Ok(StagedSkills { staged, tree: self.tree })
    }
}

impl StagedSkills {
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Sorted.
    pub fn names(&self) -> impl Iterator<Item = &SkillName> {
        self.staged.skills.iter()
    }

    /// Installs all skills, or none if it returns an error.
    pub fn install(&self) -> Result<(), Error> {
        self.staged.write_journal()?;
        let swapped = swap_all(&self.staged.new, self.tree.section(Section::Skills), &self.staged.skills);
        // After an error too: otherwise the next start of the server would install the undone
        // skills.
        let removed = self.staged.remove_journal();
        swapped.and(removed)
    }
}

impl StagingDir {
    pub(crate) fn unpack(staging: &OwnedFd, mut archive: CheckedZip, owner: Owner) -> Result<Self, Error> {
        let directory = TempDirectory::create(staging)?;
        let new = beneath::ensure_directory(&directory.handle, NEW_SKILLS, PRIVATE_DIRECTORY)
            .map_err(|errno| Error::Stage(errno.into()))?;
        let staged = Self { directory, new, skills: archive.skills.clone() };
        unpack(&mut archive, &staged.new, owner)?;
        Ok(staged)
    }

    fn write_journal(&self) -> Result<(), Error> {
        let inode = |skill: &SkillName| {
            let status = rustix::fs::statat(&self.new, skill.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok((skill.clone(), status.st_ino))
        };
        let journal = self.skills.iter().map(inode).collect::<rustix::io::Result<Journal>>();
        let write = |journal: Journal| {
            let text = serde_json::to_vec(&journal)?;
            let mut file = beneath::create_file(&self.directory.handle, JOURNAL)?;
            file.write_all(&text)?;
            file.sync_data()
        };
        journal.map_err(std::io::Error::from).and_then(write).map_err(Error::Stage)
    }

    fn remove_journal(&self) -> Result<(), Error> {
        rustix::fs::unlinkat(&self.directory.handle, JOURNAL, AtFlags::empty())
            .map_err(|errno| Error::Stage(errno.into()))
    }
}

/// Finishes the installation of an upload after a crash. The caller then deletes the staging
/// directory.
pub(crate) fn resume_install(staging: &OwnedFd, name: &str, skills: impl AsFd) -> rustix::io::Result<()> {
    let directory = match beneath::open_directory(staging, name) {
        // A temporary file of `durable` has the same prefix.
        Err(Errno::NOTDIR) => return Ok(()),
        result => result?,
    };
    let journal = match beneath::open_regular(&directory, JOURNAL) {
        Ok(Some((file, _))) => file,
        Ok(None) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let mut text = Vec::new();
    journal.take(MAX_JOURNAL_BYTES).read_to_end(&mut text).map_err(|_| Errno::IO)?;
    // A truncated journal was not synced yet, so no exchange had started.
    let Ok(journal) = serde_json::from_slice::<Journal>(&text) else { return Ok(()) };
    let new = beneath::open_directory(&directory, NEW_SKILLS)?;
    for (skill, inode) in journal {
        match rustix::fs::statat(&new, skill.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) if status.st_ino == inode => drop(swap(&new, &skills, skill.as_str())?),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swap {
    /// The name was free in the target directory.
    Moved,
    /// The old entry is now in the source directory.
    Exchanged,
}

fn swap_all(new: &OwnedFd, skills: impl AsFd, names: &BTreeSet<SkillName>) -> Result<(), Error> {
    let mut done: Vec<(&SkillName, Swap)> = Vec::new();
    for skill in names {
        match swap(new, &skills, skill.as_str()) {
            Ok(swap) => done.push((skill, swap)),
            Err(errno) => {
                for (skill, swap) in done.into_iter().rev() {
                    undo(swap, new, &skills, skill.as_str()).map_err(|errno| install_error(skill, errno))?;
                }
                return Err(install_error(skill, errno));
            }
        }
    }
    Ok(())
}

fn install_error(skill: &SkillName, errno: Errno) -> Error {
    Error::InstallSkill { skill: skill.clone(), source: errno.into() }
}

/// Moves `name` from `new` to `skills`, in exchange for the entry of that name if there is one. A
/// box may create or remove that entry between two attempts; a link or a file that it puts there is
/// moved out, not followed.
fn swap(new: &OwnedFd, skills: impl AsFd, name: &str) -> rustix::io::Result<Swap> {
    for _ in 0..MAX_SWAP_ATTEMPTS {
        match exchange(new, &skills, name) {
            Ok(()) => return Ok(Swap::Exchanged),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        match rustix::fs::renameat_with(new, name, &skills, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Swap::Moved),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

fn undo(swap: Swap, new: &OwnedFd, skills: impl AsFd, name: &str) -> rustix::io::Result<()> {
    match swap {
        Swap::Moved => rustix::fs::renameat_with(&skills, name, new, name, RenameFlags::NOREPLACE),
        Swap::Exchanged => exchange(new, skills, name),
    }
}

fn exchange(new: &OwnedFd, skills: impl AsFd, name: &str) -> rustix::io::Result<()> {
    rename_with_ownership(&skills, name, || rustix::fs::renameat_with(new, name, &skills, name, RenameFlags::EXCHANGE))
}

/// Runs `rename` and, after EACCES, makes `name` writable and tries again: moving a directory to
/// another parent updates its `..` entry and needs write permission on the directory itself, which
/// a box may have removed.
fn rename_with_ownership<T>(
    skills: impl AsFd,
    name: &str,
    rename: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match rename() {
        Err(Errno::ACCESS) => take_ownership(skills, name).and_then(|_| rename()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Cursor, Seek};
    use std::path::PathBuf;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;
    use crate::fs::durable::TEMP_PREFIX;
    use crate::sweep::RecordEntry;
    use crate::tree::SKILL_FILE;
    use crate::workspaces::Workspaces;

    struct Fixture {
        directory: tempfile::TempDir,
        workspaces: Workspaces,
        tree: Tree,
    }

    impl Fixture {
        /// A workspace with the skills `a` and `c`, whose `SKILL.md` is `old`.
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let workspaces = Workspaces::open(&directory.path().join("workspaces")).unwrap();
            let (user, agent) = ("u".parse().unwrap(), "a".parse().unwrap());
            let workspace = workspaces.workspace(&user, &agent, Owner::server()).unwrap();
            let fixture = Self { tree: workspace.tree().unwrap(), directory, workspaces };
            fixture.stage("old", &["a", "c"]).install().unwrap();
            fixture
        }

        /// Uploads and unpacks `skills`, each with `text` as its `SKILL.md`.
        fn stage(&self, text: &str, skills: &[&str]) -> StagedSkills {
            let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
            for skill in skills {
                writer.start_file(format!("{skill}/{SKILL_FILE}"), SimpleFileOptions::default()).unwrap();
                writer.write_all(text.as_bytes()).unwrap();
            }
            let mut upload = self.tree.workspace().upload_file().unwrap();
            upload.write_all(&writer.finish().unwrap().into_inner()).unwrap();
            upload.rewind().unwrap();
            let limits = ArchiveLimits { bytes: 1000, entries: 10 };
            self.tree.check_skill_archive(upload, limits).and_then(SkillArchive::unpack).unwrap()
        }

        fn path(&self, relative: &str) -> PathBuf {
            self.directory.path().join("workspaces/u/a").join(relative)
        }

        fn staging_entries(&self) -> usize {
            fs::read_dir(self.path(".staging")).unwrap().count()
        }

        #[track_caller]
        fn assert_all_new(&self) {
            assert_eq!(self.skill_texts(), [Some("new"), Some("new"), Some("new")].map(|text| text.map(str::to_owned)));
        }

        #[track_caller]
        fn assert_all_old(&self) {
            assert_eq!(self.skill_texts(), [Some("old"), None, Some("old")].map(|text| text.map(str::to_owned)));
        }

        fn skill_texts(&self) -> [Option<String>; 3] {
            ["a", "b", "c"].map(|skill| fs::read_to_string(self.path("skills").join(skill).join(SKILL_FILE)).ok())
        }

        /// Sweeps as the next start of the server does. Exactly one leftover is expected.
        #[track_caller]
        fn restart(&self) {
            let swept = self.workspaces.sweep(|_| false, |_| RecordEntry::Unknown);
            assert_eq!((swept.failed, swept.removed), (0, 1), "{:?}", swept.first_failure);
            assert_eq!(self.staging_entries(), 0);
        }
    }

    /// Leaves the staging directory behind, as a killed server does.
    fn crash(upload: StagedSkills) {
        std::mem::forget(upload);
    }

    #[test]
    fn failed_swap_undoes_earlier_swaps() {
        let fixture = Fixture::new();
        let upload = fixture.stage("new", &["a", "b", "c"]);
        let mut names = upload.staged.skills.clone();
        // Sorts last and is not in the staging directory, so its swap fails.
        names.insert("d".parse().unwrap());
        let error = swap_all(&upload.staged.new, fixture.tree.section(Section::Skills), &names).unwrap_err();
        assert!(matches!(&error, Error::InstallSkill { skill, .. } if skill.as_str() == "d"), "{error:?}");
        fixture.assert_all_old();
    }

    #[test]
    fn upload_installs_after_undone_swaps() {
        let fixture = Fixture::new();
        let upload = fixture.stage("new", &["a", "b", "c"]);
        let names = upload.names().cloned().chain(["d".parse().unwrap()]).collect();
        swap_all(&upload.staged.new, fixture.tree.section(Section::Skills), &names).unwrap_err();
        upload.install().unwrap();
        fixture.assert_all_new();
    }

    #[test]
    fn dropped_upload_leaves_staging_empty() {
        let fixture = Fixture::new();
        let upload = fixture.stage("new", &["a", "b", "c"]);
        upload.install().unwrap();
        drop(upload);
        assert_eq!(fixture.staging_entries(), 0);
    }

    #[test]
    fn crash_between_swaps_is_finished_at_restart() {
        for done in 0..=3 {
            let fixture = Fixture::new();
            let upload = fixture.stage("new", &["a", "b", "c"]);
            upload.staged.write_journal().unwrap();
            for skill in upload.names().take(done) {
                swap(&upload.staged.new, fixture.tree.section(Section::Skills), skill.as_str()).unwrap();
            }
            crash(upload);
            fixture.restart();
            fixture.assert_all_new();
        }
    }

    #[test]
    fn crash_before_journal_keeps_old_skills() {
        let fixture = Fixture::new();
        crash(fixture.stage("new", &["a", "b", "c"]));
        fixture.restart();
        fixture.assert_all_old();
    }

    #[test]
    fn truncated_journal_keeps_old_skills() {
        let fixture = Fixture::new();
        let upload = fixture.stage("new", &["a", "b", "c"]);
        upload.staged.write_journal().unwrap();
        let journal = fixture.path(".staging").join(&upload.staged.directory.name).join(JOURNAL);
        let text = fs::read(&journal).unwrap();
        fs::write(&journal, &text[..text.len() / 2]).unwrap();
        crash(upload);
        fixture.restart();
        fixture.assert_all_old();
    }

    #[test]
    fn temporary_file_is_removed_at_restart() {
        let fixture = Fixture::new();
        fs::write(fixture.path(".staging").join(format!("{TEMP_PREFIX}1")), "half an index").unwrap();
        fixture.restart();
    }
}
