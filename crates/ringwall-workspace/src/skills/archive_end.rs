//! The last record of a zip, read before anything else is: where the directory is and how many entries it claims.
//!
//! Two readers of one archive must not see two different ones, and an index of a million entries must not be built to
//! find that there are too many. So there is one place to look: the last end record, its comment reaching the end of the
//! file, the directory reaching up to it, and nothing before the archive. Every tool that makes zips makes them so.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::error::Error;
use crate::skills::ArchiveRefusal;

const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
const END_SIZE: usize = 22;
const END_64_SIZE: usize = 56;
const LOCATOR_64_SIZE: usize = 20;
const MAX_COMMENT: usize = u16::MAX as usize;

/// Refuses what has no plain end, or claims too many entries.
pub(crate) fn check(file: &File, entries_max: u64) -> Result<(), Error> {
    let length = file.metadata().map_err(Error::ReadArchive)?.len();
    let tail_size =
        (END_SIZE + MAX_COMMENT + END_64_SIZE + LOCATOR_64_SIZE).min(usize::try_from(length).unwrap_or(usize::MAX));
    let tail_start = length - tail_size as u64;
    let mut tail = vec![0; tail_size];
    read_at(file, &mut tail, tail_start)?;
    let end =
        tail.windows(END.len()).rposition(|window| window == END).ok_or_else(|| malformed("it has no end record"))?;
    let record = tail.get(end..end + END_SIZE).ok_or_else(|| malformed("its end record is cut off"))?;
    if end + END_SIZE + usize::from(u16_at(record, 20)) != tail.len() {
        return Err(malformed("something follows its end"));
    }
    let end_at = tail_start + end as u64;
    let (count, size, start, reaches) = match locate_64(&tail, end) {
        None => {
            let count = u64::from(u16_at(record, 10));
            (count, u64::from(u32_at(record, 12)), u64::from(u32_at(record, 16)), end_at)
        }
        Some(at) => {
            let mut record = [0; END_64_SIZE];
            read_at(file, &mut record, at)?;
            if record[..4] != END_64 {
                return Err(malformed("its 64-bit end record is not where it should be"));
            }
            (u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48), at)
        }
    };
    if start.checked_add(size) != Some(reaches) {
        return Err(malformed("its directory does not reach its end"));
    }
    if count > entries_max {
        return Err(ArchiveRefusal::Entries(entries_max).into());
    }
    Ok(())
}

/// Where the 64-bit end record is, if there is a locator for one right before the end.
fn locate_64(tail: &[u8], end: usize) -> Option<u64> {
    let locator = tail.get(end.checked_sub(LOCATOR_64_SIZE)?..end)?;
    (locator[..4] == LOCATOR_64).then(|| u64_at(locator, 8))
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(malformed("a record lies outside of it")),
        Err(error) => Err(Error::ReadArchive(error)),
    }
}

fn malformed(why: &str) -> Error {
    ArchiveRefusal::Malformed(why.to_owned()).into()
}

/// Little-endian numbers; what lies outside counts as zero, and every record here was read whole.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}
