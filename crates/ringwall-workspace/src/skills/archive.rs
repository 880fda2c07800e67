//! Checks an uploaded ZIP before any of its files is written.
//!
//! Only the headers are read here: entries that overlap, are hidden, or differ between the central
//! directory and their local header are rejected. [`unpack`](crate::skills::unpack) checks the
//! data. Of the Unix mode only the owner's execute bit is used, so no entry becomes a symlink, a
//! device or a set-user-id file.
//!
//! Two ZIP readers must not see different contents, so only one layout is accepted: no data before
//! the first entry, the central directory directly before the end record, and the end record's
//! comment up to the end of the file. Common ZIP tools write this layout. The end record is read
//! first, so that an archive that claims a million entries is rejected before an index of them is
//! built.
//!
//! Terms are those of PKWARE's APPNOTE.TXT.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;

use ringwall_ids::quote;
use rustix::fs::FileType;
use zip::read::{ArchiveOffset, Config, ZipFileEntry};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::error::Error;
use crate::relative_path::RelativePath;
use crate::skills::SkillName;
use crate::skills::entry_name::{EntryKind, NameEncoding, parse_entry_name};
use crate::tree::{AgentPath, FilesError, FilesErrorKind, SKILL_FILE, Section};
use crate::usage::Usage;

/// Metadata that the Finder of macOS adds; left out.
const MACOS_DIRECTORY: &str = "__MACOSX";
const MACOS_FILE: &str = ".DS_Store";

/// Offset of the flags in a central directory header, and the flag for UTF-8 names.
const FLAGS_OFFSET: u64 = 8;
const UTF8_FLAG: u16 = 1 << 11;

const END_SIGNATURE: [u8; 4] = *b"PK\x05\x06";
const END_SIZE: usize = 22;
const MAX_COMMENT_SIZE: usize = u16::MAX as usize;
const ZIP64_END_SIGNATURE: [u8; 4] = *b"PK\x06\x06";
const ZIP64_END_SIZE: usize = 56;
const ZIP64_LOCATOR_SIGNATURE: [u8; 4] = *b"PK\x06\x07";
const ZIP64_LOCATOR_SIZE: usize = 20;

/// Set by `skills.unpacked_max_mb` and `skills.entries_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Sum of the unpacked sizes of all files.
    pub bytes: u64,
    pub entries: u64,
}

/// Why an uploaded archive is rejected. The workspace is unchanged.
///
/// Contract 000 fixes the texts of `NoSkill` and `MissingSkillFile`. Quoted names are escaped and
/// truncated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    #[error("Validation Error: No valid skill directory found in ZIP.")]
    NoSkill,
    #[error("Validation Error: Skill [{0}] is missing required 'SKILL.md' at its root.")]
    MissingSkillFile(SkillName),

    #[error("Validation Error: {0} is at the top level of the ZIP; move it into a skill directory.")]
    StrayFile(String),
    #[error("Validation Error: The file is not a readable ZIP archive: {0}. Create it again and retry.")]
    Malformed(String),
    #[error("Validation Error: The name {name} in the ZIP {reason}.")]
    InvalidName { name: String, reason: String },
    #[error("Validation Error: {0} occurs twice in the ZIP, or is both a file and a directory.")]
    DuplicatePath(String),
    #[error("Validation Error: {0} in the ZIP is a symbolic link; only files and directories are allowed.")]
    Symlink(String),
    #[error("Validation Error: {0} in the ZIP is neither a regular file nor an ordinary directory.")]
    SpecialFile(String),
    #[error("Validation Error: {0} in the ZIP is encrypted; upload it without a password.")]
    Encrypted(String),
    #[error("Validation Error: {name} in the ZIP uses compression method {method}; use store or deflate.")]
    UnsupportedMethod { name: String, method: String },
    #[error("Validation Error: {name} in the ZIP is corrupt: {reason}. Create the ZIP again and retry.")]
    Corrupt { name: String, reason: String },

    #[error("Validation Error: The ZIP has more than {0} entries; split it or raise skills.entries_max.")]
    TooManyEntries(u64),
    #[error("Validation Error: The ZIP unpacks to more than {0} bytes; split it or raise skills.unpacked_max_mb.")]
    TooManyBytes(u64),
    #[error("Validation Error: The ZIP unpacks to more than {0} times its size; store such files uncompressed.")]
    CompressionRatio(u64),
}

impl ArchiveError {
    pub fn kind(&self) -> FilesErrorKind {
        match self {
            Self::NoSkill
            | Self::MissingSkillFile(_)
            | Self::StrayFile(_)
            | Self::Malformed(_)
            | Self::InvalidName { .. }
            | Self::DuplicatePath(_)
            | Self::Symlink(_)
            | Self::SpecialFile(_)
            | Self::Encrypted(_)
            | Self::UnsupportedMethod { .. }
            | Self::Corrupt { .. } => FilesErrorKind::Invalid,
            Self::TooManyEntries(_) | Self::TooManyBytes(_) | Self::CompressionRatio(_) => FilesErrorKind::TooLarge,
        }
    }
}

/// A ZIP whose headers passed all checks.
#[derive(Debug)]
pub(crate) struct CheckedZip {
    pub(crate) zip: ZipArchive<BufReader<File>>,
    /// The file that `zip` reads, for reads at an offset.
    pub(crate) file: File,
    pub(crate) limits: ArchiveLimits,
    pub(crate) skills: BTreeSet<SkillName>,
    /// Includes directories without an entry of their own. A parent sorts before its children.
    pub(crate) directories: BTreeSet<RelativePath>,
    /// In the order of their data in the archive.
    pub(crate) files: Vec<FileEntry>,
}

#[derive(Debug)]
pub(crate) struct FileEntry {
    pub(crate) index: usize,
    pub(crate) path: RelativePath,
    /// From the central directory; the data may differ.
    pub(crate) declared_size: u64,
    pub(crate) permissions: Permissions,
    pub(crate) descriptor: DataDescriptor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permissions {
    Plain,
    Executable,
}

/// A second copy of sizes and checksum after the data of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataDescriptor {
    Present,
    Absent,
}

impl CheckedZip {
    pub(crate) fn read(file: File, limits: ArchiveLimits) -> Result<Self, Error> {
        check_end_record(&file, limits.entries)?;
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let reader = BufReader::new(file.try_clone().map_err(Error::ReadArchive)?);
        let mut zip = ZipArchive::with_config(config, reader).map_err(from_zip_error)?;
        zip.validate_header_consistency().map_err(from_zip_error)?;
        let mut entries = EntryCollector::default();
        for index in 0..zip.len() {
            let entry = zip.by_index_data(index).map_err(from_zip_error)?;
            let encoding = name_encoding(&file, &entry)?;
            entries.add(index, &entry, encoding)?;
        }
        let Contents { skills, directories, files } = entries.finish()?;
        let declared = files.iter().try_fold(0_u64, |sum, entry| sum.checked_add(entry.declared_size));
        if declared.is_none_or(|declared| declared > limits.bytes) {
            return Err(ArchiveError::TooManyBytes(limits.bytes).into());
        }
        Ok(Self { zip, file, limits, skills, directories, files })
    }

    /// Estimates the disk space of the unpacked files from their declared sizes.
    pub(crate) fn usage(&self) -> Usage {
        let files = self.files.iter().map(|entry| entry.declared_size);
        let directories = self.directories.iter().map(|_| 1);
        files.chain(directories).map(Usage::of_file).fold(Usage::default(), Usage::plus)
    }
}

/// Checks each entry by itself and against the entries before it.
#[derive(Default)]
struct EntryCollector {
    kinds: BTreeMap<RelativePath, EntryKind>,
    files: Vec<FileEntry>,
}

struct Contents {
    skills: BTreeSet<SkillName>,
    directories: BTreeSet<RelativePath>,
    files: Vec<FileEntry>,
}

impl EntryCollector {
    fn add(&mut self, index: usize, entry: &ZipFileEntry<'_>, encoding: NameEncoding) -> Result<(), ArchiveError> {
        let (path, kind) = parse_entry_name(entry.name_raw(), encoding)?;
        let quoted = || quote(path.as_str());
        if entry.encrypted() {
            return Err(ArchiveError::Encrypted(quoted()));
        }
        let mode = entry.unix_mode().unwrap_or_default();
        match (FileType::from_raw_mode(mode), kind) {
            // Many tools leave the file type out.
            (FileType::Unknown, _) if mode & 0o170_000 == 0 => {}
            (FileType::RegularFile, EntryKind::File) | (FileType::Directory, EntryKind::Directory) => {}
            (FileType::Symlink, _) => return Err(ArchiveError::Symlink(quoted())),
            _ => return Err(ArchiveError::SpecialFile(quoted())),
        }
        match (kind, entry.compression()) {
            (EntryKind::Directory, _) if entry.size() > 0 => return Err(ArchiveError::SpecialFile(quoted())),
            (EntryKind::Directory, _) => {}
            (EntryKind::File, CompressionMethod::Stored | CompressionMethod::Deflated) => {}
            (EntryKind::File, other) => {
                return Err(ArchiveError::UnsupportedMethod { name: quoted(), method: other.to_string() });
            }
        }
        if is_macos_metadata(&path) {
            return Ok(());
        }
        match (self.kinds.insert(path.clone(), kind), kind) {
            (None, _) | (Some(EntryKind::Directory), EntryKind::Directory) => {}
            _ => return Err(ArchiveError::DuplicatePath(quoted())),
        }
        if kind == EntryKind::File {
            let permissions = if mode & 0o100 == 0 { Permissions::Plain } else { Permissions::Executable };
            let has_descriptor = entry.flags().is_using_data_descriptor();
            let descriptor = if has_descriptor { DataDescriptor::Present } else { DataDescriptor::Absent };
            self.files.push(FileEntry { index, path, declared_size: entry.size(), permissions, descriptor });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Contents, Error> {
        self.add_parents()?;
        let directories: BTreeSet<_> = self
            .kinds
            .iter()
            .filter(|(_, kind)| **kind == EntryKind::Directory)
            .map(|(path, _)| path.clone())
            .collect();
        let skills = directories.iter().filter(|path| !path.as_str().contains('/'));
        let skills = skills.map(|path| path.as_str().parse()).collect::<Result<BTreeSet<SkillName>, _>>()?;
        self.check_skills(&skills)?;
        Ok(Contents { skills, directories, files: self.files })
    }

    /// Adds directories that occur only in the paths of other entries. A file cannot be such a
    /// directory.
    fn add_parents(&mut self) -> Result<(), Error> {
        let paths: Vec<RelativePath> = self.kinds.keys().cloned().collect();
        for path in &paths {
            for (end, _) in path.as_str().match_indices('/') {
                let parent = &path.as_str()[..end];
                let parent = RelativePath::from_listing(parent.as_bytes()).map_err(FilesError::Malformed)?;
                if self.kinds.get(&parent) == Some(&EntryKind::File) {
                    return Err(ArchiveError::DuplicatePath(quote(parent.as_str())).into());
                }
                self.kinds.insert(parent, EntryKind::Directory);
            }
        }
        Ok(())
    }

    fn check_skills(&self, skills: &BTreeSet<SkillName>) -> Result<(), FilesError> {
        if skills.is_empty() {
            return Err(ArchiveError::NoSkill.into());
        }
        if let Some(stray) = self.files.iter().find(|entry| !entry.path.as_str().contains('/')) {
            return Err(ArchiveError::StrayFile(quote(stray.path.as_str())).into());
        }
        let files: BTreeSet<&str> = self.files.iter().map(|entry| entry.path.as_str()).collect();
        for skill in skills {
            if !files.contains(format!("{skill}/{SKILL_FILE}").as_str()) {
                return Err(ArchiveError::MissingSkillFile(skill.clone()).into());
            }
        }
        for path in self.kinds.keys() {
            AgentPath::parse(&format!("{}/{}", Section::Skills.name(), path.as_str()))?.check_writable()?;
        }
        Ok(())
    }
}

/// Reads the UTF-8 flag from the file, because the `zip` crate does not expose it. Skipped for
/// names that are UTF-8.
fn name_encoding(file: &File, entry: &ZipFileEntry<'_>) -> Result<NameEncoding, Error> {
    if std::str::from_utf8(entry.name_raw()).is_ok() {
        return Ok(NameEncoding::Utf8);
    }
    let mut flags = [0; 2];
    file.read_exact_at(&mut flags, entry.central_header_start() + FLAGS_OFFSET).map_err(Error::ReadArchive)?;
    Ok(if u16_at(&flags, 0) & UTF8_FLAG == 0 { NameEncoding::Undeclared } else { NameEncoding::Utf8 })
}

fn is_macos_metadata(path: &RelativePath) -> bool {
    path.as_str().split('/').next() == Some(MACOS_DIRECTORY) || path.split().1 == MACOS_FILE
}

/// Tells a failed disk, which has an OS error number, from a malformed archive.
pub(crate) fn from_zip_error(error: ZipError) -> Error {
    match error {
        ZipError::Io(error) if error.raw_os_error().is_some() => Error::ReadArchive(error),
        ZipError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => malformed("it is truncated"),
        ZipError::Io(error) => malformed(&error.to_string()),
        ZipError::InvalidArchive(reason) => malformed(&reason),
        ZipError::UnsupportedArchive(reason) => malformed(reason),
        other => malformed(&other.to_string()),
    }
}

/// Rejects an archive whose end record is not the last record of the file or claims more than
/// `max_entries` entries.
fn check_end_record(file: &File, max_entries: u64) -> Result<(), Error> {
    let length = file.metadata().map_err(Error::ReadArchive)?.len();
    let max_tail_size = END_SIZE + MAX_COMMENT_SIZE + ZIP64_END_SIZE + ZIP64_LOCATOR_SIZE;
    let tail_size = max_tail_size.min(usize::try_from(length).unwrap_or(usize::MAX));
    let tail_start = length - tail_size as u64;
    let mut tail = vec![0; tail_size];
    read_at(file, &mut tail, tail_start)?;
    let end = tail
        .windows(END_SIGNATURE.len())
        .rposition(|window| window == END_SIGNATURE)
        .ok_or_else(|| malformed("it has no end record"))?;
    let record = tail.get(end..end + END_SIZE).ok_or_else(|| malformed("its end record is truncated"))?;
    if end + END_SIZE + usize::from(u16_at(record, 20)) != tail.len() {
        return Err(malformed("data follows its end record"));
    }
    let (count, size, start, directory_end) = match zip64_end_offset(&tail, end) {
        None => {
            let count = u64::from(u16_at(record, 10));
            (count, u64::from(u32_at(record, 12)), u64::from(u32_at(record, 16)), tail_start + end as u64)
        }
        Some(offset) => {
            let mut record = [0; ZIP64_END_SIZE];
            read_at(file, &mut record, offset)?;
            if record[..4] != ZIP64_END_SIGNATURE {
                return Err(malformed("its ZIP64 locator does not point to a ZIP64 end record"));
            }
            (u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48), offset)
        }
    };
    if start.checked_add(size) != Some(directory_end) {
        return Err(malformed("its central directory does not end at its end record"));
    }
    if count > max_entries {
        return Err(ArchiveError::TooManyEntries(max_entries).into());
    }
    Ok(())
}

/// Reads the ZIP64 locator, which if present lies directly before the end record.
fn zip64_end_offset(tail: &[u8], end: usize) -> Option<u64> {
    let locator = tail.get(end.checked_sub(ZIP64_LOCATOR_SIZE)?..end)?;
    (locator[..4] == ZIP64_LOCATOR_SIGNATURE).then(|| u64_at(locator, 8))
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(malformed("a record lies outside the file")),
        Err(error) => Err(Error::ReadArchive(error)),
    }
}

fn malformed(reason: &str) -> Error {
    ArchiveError::Malformed(reason.to_owned()).into()
}

/// Reads a little-endian number; 0 if it lies outside `bytes`. Callers pass complete records.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..offset + 2).and_then(|part| part.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}
