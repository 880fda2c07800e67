//! Maps of sparse files: where each stored segment belongs; the rest are holes.
//!
//! GNU tar has four formats: in the header and following blocks, as pax records, as one pax list,
//! and at the start of the content. All are converted to the same list, checked and of bounded
//! length, before anything is written.

use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

use super::ImageError;
use super::entries::{BLOCK, Entries};
use super::pax::{PaxSparse, number};

/// The list is held in memory. A fragmented disk image has thousands of segments.
const MAX_SEGMENTS: usize = 65_536;
/// u64 has at most twenty decimal digits.
const MAX_DIGITS: usize = 20;

#[derive(Debug)]
pub(super) struct SparseMap {
    pub(super) real_size: u64,
    pub(super) segments: Vec<Segment>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The map of an old GNU sparse entry: four segments in the header, more in blocks after it.
pub(super) fn from_header(header: &Header, stored: u64, entries: &mut Entries<'_>) -> Result<SparseMap, ImageError> {
    let gnu = header.as_gnu().ok_or_else(|| entries.malformed("a sparse entry without a GNU header"))?;
    let mut segments = Vec::new();
    collect(&gnu.sparse, &mut segments, entries)?;
    let mut more = gnu.is_extended();
    while more {
        let mut block = GnuExtSparseHeader::new();
        entries.read_exact(block.as_mut_bytes())?;
        collect(block.sparse(), &mut segments, entries)?;
        more = block.is_extended();
        if segments.len() > MAX_SEGMENTS {
            return Err(entries.malformed("its sparse map is absurdly long"));
        }
        // A chain of empty blocks would otherwise be read without end.
        if more && block.sparse().iter().all(GnuSparseHeader::is_empty) {
            return Err(entries.malformed("its sparse map goes on after its end"));
        }
    }
    let real_size = entries.field(gnu.real_size(), "its real size is not a number")?;
    check(real_size, segments, stored, entries)
}

/// The map of a pax sparse entry, if it is one. Version 1.0 stores it at the start of the content.
pub(super) fn from_pax(pax: &PaxSparse, entries: &mut Entries<'_>) -> Result<Option<SparseMap>, ImageError> {
    let Some(real_size) = pax.real_size else {
        return Ok(None);
    };
    let numbers = match pax.major {
        Some(1) => read_map(entries)?,
        None | Some(0) => pax.numbers.clone(),
        Some(_) => return Err(entries.malformed("its sparse map is of an unknown version")),
    };
    if numbers.len() % 2 != 0 || numbers.len() / 2 > MAX_SEGMENTS {
        return Err(entries.malformed("its sparse map is of a wrong length"));
    }
    let segments = numbers.chunks_exact(2).map(|pair| Segment { offset: pair[0], length: pair[1] }).collect();
    check(real_size, segments, entries.content_left(), entries).map(Some)
}

fn collect(stated: &[GnuSparseHeader], segments: &mut Vec<Segment>, entries: &Entries<'_>) -> Result<(), ImageError> {
    for segment in stated.iter().filter(|segment| !segment.is_empty()) {
        segments.push(Segment {
            offset: entries.field(segment.offset(), "an offset in its sparse map is not a number")?,
            length: entries.field(segment.length(), "a length in its sparse map is not a number")?,
        });
    }
    Ok(())
}

/// Decimal numbers, one per line, the first being the number of segments; padded to a whole block.
fn read_map(entries: &mut Entries<'_>) -> Result<Vec<u64>, ImageError> {
    let mut block = [0; BLOCK];
    let mut digits = Vec::with_capacity(MAX_DIGITS);
    let mut numbers = Vec::new();
    let mut expected = None;
    loop {
        if entries.read_content(&mut block)? < BLOCK {
            return Err(entries.malformed("its sparse map is cut"));
        }
        for byte in block {
            if byte != b'\n' {
                digits.push(byte);
                if digits.len() > MAX_DIGITS {
                    return Err(entries.malformed("a number in its sparse map is none"));
                }
                continue;
            }
            let value = number(&digits).map_err(|problem| entries.malformed(problem))?;
            digits.clear();
            match expected {
                None if value > MAX_SEGMENTS as u64 => {
                    return Err(entries.malformed("its sparse map is absurdly long"));
                }
                None => expected = Some(value * 2),
                Some(_) => numbers.push(value),
            }
            if expected == Some(numbers.len() as u64) {
                return Ok(numbers);
            }
        }
    }
}

fn check(real_size: u64, segments: Vec<Segment>, stored: u64, entries: &Entries<'_>) -> Result<SparseMap, ImageError> {
    let mut end = 0;
    let mut sum = 0_u64;
    for segment in &segments {
        let after = segment.offset.checked_add(segment.length);
        match after {
            Some(after) if segment.offset >= end && after <= real_size => end = after,
            _ => return Err(entries.malformed("its sparse map overlaps or leaves the file")),
        }
        // Cannot overflow: the segments do not overlap and end at `real_size` at most.
        sum += segment.length;
    }
    if sum != stored {
        return Err(entries.malformed("its sparse map does not agree with its size"));
    }
    Ok(SparseMap { real_size, segments })
}
