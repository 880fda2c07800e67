//! An uploaded zip, judged as a whole before anything of it is written.
//!
//! Only what its directory claims is looked at here, and every claim is held against the rest of the archive: entries
//! that overlap, hide, or say something else in their own headers are refused. That the bytes are as claimed is seen
//! while they are written. Nothing in an archive is ever made a link, a device or a set-user-id file: of its modes, only
//! whether a file can be executed counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;

use rustix::fs::FileType;
use zip::read::{ArchiveOffset, Config, ZipFileEntry};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::error::{Error, quote};
use crate::relative_path::RelativePath;
use crate::skills::archive_end::{self, u16_at};
use crate::skills::entry_name::{Encoding, NameKind, read_name};
use crate::skills::{ArchiveRefusal, SkillName};
use crate::tree::{AgentPath, Refusal, SKILL_FILE, Section};
use crate::usage::Usage;

/// What macOS puts beside the files of everybody else.
const MACOS_FOLDER: &str = "__MACOSX";
const MACOS_FILE: &str = ".DS_Store";
/// Where the header of an entry in the directory has its flags, and which of them says that its name is UTF-8.
const FLAGS_AT: u64 = 8;
const UTF8_NAMES: u16 = 1 << 11;

/// How much one upload may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Bytes of all files when they are unpacked.
    pub bytes: u64,
    pub entries: u64,
}

/// A zip that may be unpacked.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) zip: ZipArchive<BufReader<File>>,
    /// The same file, to look at single places of.
    pub(crate) file: File,
    pub(crate) limits: ArchiveLimits,
    pub(crate) skills: BTreeSet<SkillName>,
    /// All directories, also those that only the paths of files speak of; a directory comes before what is in it.
    pub(crate) directories: BTreeSet<RelativePath>,
    /// In the order of the archive, which is that of its bytes.
    pub(crate) files: Vec<Entry>,
}

/// One file of a zip.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) index: usize,
    pub(crate) path: RelativePath,
    pub(crate) size: u64,
    pub(crate) execution: Execution,
    pub(crate) descriptor: Descriptor,
}

/// Whether a file can be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Execution {
    Possible,
    Impossible,
}

/// Whether an entry says its sizes and checksum once more behind its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Follows,
    Absent,
}

impl Archive {
    pub(crate) fn read(file: File, limits: ArchiveLimits) -> Result<Self, Error> {
        archive_end::check(&file, limits.entries)?;
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let reading = BufReader::new(file.try_clone().map_err(Error::ReadArchive)?);
        let mut zip = ZipArchive::with_config(config, reading).map_err(explain)?;
        zip.validate_header_consistency().map_err(explain)?;
        let mut sorting = Sorting::default();
        for index in 0..zip.len() {
            let entry = zip.by_index_data(index).map_err(explain)?;
            let encoding = encoding_of(&file, &entry)?;
            sorting.take(index, &entry, encoding)?;
        }
        let Sorted { skills, directories, files } = sorting.finish()?;
        let declared = files.iter().try_fold(0_u64, |sum, entry| sum.checked_add(entry.size));
        if declared.is_none_or(|declared| declared > limits.bytes) {
            return Err(ArchiveRefusal::Bytes(limits.bytes).into());
        }
        Ok(Self { zip, file, limits, skills, directories, files })
    }

    /// What it takes on the disk when it is unpacked, about.
    pub(crate) fn usage(&self) -> Usage {
        let files = self.files.iter().map(|entry| entry.size);
        let directories = self.directories.iter().map(|_| 1);
        files.chain(directories).map(Usage::of_file).fold(Usage::default(), Usage::plus)
    }
}

/// Entries on their way into files and directories.
#[derive(Default)]
struct Sorting {
    kinds: BTreeMap<RelativePath, NameKind>,
    files: Vec<Entry>,
}

struct Sorted {
    skills: BTreeSet<SkillName>,
    directories: BTreeSet<RelativePath>,
    files: Vec<Entry>,
}

impl Sorting {
    fn take(&mut self, index: usize, entry: &ZipFileEntry<'_>, encoding: Encoding) -> Result<(), ArchiveRefusal> {
        let (path, kind) = read_name(entry.name_raw(), encoding)?;
        let named = || quote(path.as_str());
        if entry.encrypted() {
            return Err(ArchiveRefusal::Encrypted(named()));
        }
        let mode = entry.unix_mode().unwrap_or_default();
        match (FileType::from_raw_mode(mode), kind) {
            // Many tools write no type at all.
            (FileType::Unknown, _) if mode & 0o170_000 == 0 => {}
            (FileType::RegularFile, NameKind::File) | (FileType::Directory, NameKind::Directory) => {}
            (FileType::Symlink, _) => return Err(ArchiveRefusal::Link(named())),
            _ => return Err(ArchiveRefusal::Special(named())),
        }
        match (kind, entry.compression()) {
            (NameKind::Directory, _) if entry.size() > 0 => return Err(ArchiveRefusal::Special(named())),
            (NameKind::Directory, _) => {}
            (NameKind::File, CompressionMethod::Stored | CompressionMethod::Deflated) => {}
            (NameKind::File, other) => {
                return Err(ArchiveRefusal::Method { name: named(), method: other.to_string() });
            }
        }
        if is_of_macos(&path) {
            return Ok(());
        }
        match (self.kinds.insert(path.clone(), kind), kind) {
            (None, _) | (Some(NameKind::Directory), NameKind::Directory) => {}
            _ => return Err(ArchiveRefusal::Collision(named())),
        }
        if kind == NameKind::File {
            let execution = if mode & 0o100 == 0 { Execution::Impossible } else { Execution::Possible };
            let follows = entry.flags().is_using_data_descriptor();
            let descriptor = if follows { Descriptor::Follows } else { Descriptor::Absent };
            self.files.push(Entry { index, path, size: entry.size(), execution, descriptor });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Sorted, Error> {
        let paths: Vec<RelativePath> = self.kinds.keys().cloned().collect();
        for path in &paths {
            for (end, _) in path.as_str().match_indices('/') {
                let parent = &path.as_str()[..end];
                let parent = RelativePath::from_listing(parent.as_bytes()).map_err(Refusal::Malformed)?;
                // A file, with something that pretends to be in it.
                if self.kinds.get(&parent) == Some(&NameKind::File) {
                    return Err(ArchiveRefusal::Collision(quote(parent.as_str())).into());
                }
                self.kinds.insert(parent, NameKind::Directory);
            }
        }
        let directories: BTreeSet<_> =
            self.kinds.iter().filter(|(_, kind)| **kind == NameKind::Directory).map(|(path, _)| path.clone()).collect();
        let skills = directories.iter().filter(|path| !path.as_str().contains('/'));
        let skills = skills.map(|path| path.as_str().parse()).collect::<Result<BTreeSet<SkillName>, _>>()?;
        self.check_skills(&skills)?;
        Ok(Sorted { skills, directories, files: self.files })
    }

    fn check_skills(&self, skills: &BTreeSet<SkillName>) -> Result<(), Refusal> {
        if skills.is_empty() {
            return Err(ArchiveRefusal::NoSkill.into());
        }
        if let Some(stray) = self.files.iter().find(|entry| !entry.path.as_str().contains('/')) {
            return Err(ArchiveRefusal::Stray(quote(stray.path.as_str())).into());
        }
        let files: BTreeSet<&str> = self.files.iter().map(|entry| entry.path.as_str()).collect();
        for skill in skills {
            if !files.contains(format!("{skill}/{SKILL_FILE}").as_str()) {
                return Err(ArchiveRefusal::NoSkillFile(skill.clone()).into());
            }
        }
        for path in self.kinds.keys() {
            AgentPath::parse(&format!("{}/{}", Section::Skills.name(), path.as_str()))?.check_writable()?;
        }
        Ok(())
    }
}

/// The reader of zips keeps the flag to itself; it counts only where a name is not UTF-8.
fn encoding_of(file: &File, entry: &ZipFileEntry<'_>) -> Result<Encoding, Error> {
    if std::str::from_utf8(entry.name_raw()).is_ok() {
        return Ok(Encoding::Utf8);
    }
    let mut flags = [0; 2];
    file.read_exact_at(&mut flags, entry.central_header_start() + FLAGS_AT).map_err(Error::ReadArchive)?;
    Ok(if u16_at(&flags, 0) & UTF8_NAMES == 0 { Encoding::Unsaid } else { Encoding::Utf8 })
}

fn is_of_macos(path: &RelativePath) -> bool {
    path.as_str().split('/').next() == Some(MACOS_FOLDER) || path.split().1 == MACOS_FILE
}

/// What the reader of zips found wrong, or the disk.
pub(crate) fn explain(error: ZipError) -> Error {
    match error {
        ZipError::Io(error) if error.raw_os_error().is_some() => Error::ReadArchive(error),
        ZipError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            ArchiveRefusal::Malformed("it is cut off".to_owned()).into()
        }
        ZipError::Io(error) => ArchiveRefusal::Malformed(error.to_string()).into(),
        ZipError::InvalidArchive(why) => ArchiveRefusal::Malformed(why.into_owned()).into(),
        ZipError::UnsupportedArchive(why) => ArchiveRefusal::Malformed(why.to_owned()).into(),
        other => ArchiveRefusal::Malformed(other.to_string()).into(),
    }
}
