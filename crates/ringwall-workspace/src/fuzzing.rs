//! Entry points of the fuzz targets (`fuzz/`) into parsers of this crate. Not part of its interface.

use std::fs::File;
use std::io::Write;

use rustix::fs::MemfdFlags;

use crate::skills::ArchiveLimits;
use crate::skills::archive::CheckedZip;
use crate::skills::entry_name::{NameEncoding, parse_entry_name};
use crate::skills::metadata::SkillMetadata;

/// Checks the directory of an uploaded zip.
pub fn read_zip(bytes: &[u8]) {
    let Ok(memory) = rustix::fs::memfd_create(c"zip", MemfdFlags::CLOEXEC) else { return };
    let mut file = File::from(memory);
    if file.write_all(bytes).is_ok() {
        let _ = CheckedZip::read(file, ArchiveLimits { bytes: 1 << 20, entries: 1000 });
    }
}

/// The path of a zip entry, if its name is accepted.
pub fn read_entry_name(bytes: &[u8], is_utf8: bool) -> Option<String> {
    let encoding = if is_utf8 { NameEncoding::Utf8 } else { NameEncoding::Undeclared };
    parse_entry_name(bytes, encoding).ok().map(|(path, _)| path.as_str().to_owned())
}

/// Reads name and description of a skill.
pub fn read_skill_metadata(text: &str) {
    let _ = SkillMetadata::parse(text).warnings("folder");
}
