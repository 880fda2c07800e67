//! Reads an untrusted tar stream, one entry at a time.
//!
//! The `tar` crate parses header fields. Framing is done here, because the crate reads extension
//! headers into memory without a limit, and because a stream without an end mark must be reported
//! as truncated. Entry types without content (links, directories, devices) have none, whatever
//! their size field says. Go's reader behaves the same, and Go programs write most container
//! archives.

use tar::{EntryType, Header};

use super::ImageError;
use super::error::printable;
use super::name::{EntryName, check_target};
use super::pax::PaxRecords;
use super::source::Stream;

pub(super) const BLOCK: usize = 512;
/// Extended attributes can fill a pax header, but file systems store far less than 1 MiB of them.
const MAX_PAX: u64 = 1024 * 1024;
/// PATH_MAX: a longer name could not be created.
const MAX_LONG_NAME: u64 = 4096;

/// An entry. Its content is read from [`Entries`].
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: EntryName,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) mtime: i64,
    /// Bytes of content that follow in the stream.
    pub(super) stored: u64,
}

#[derive(Debug)]
pub(super) enum Kind {
    Directory,
    File,
    Symlink(Vec<u8>),
    HardLink(EntryName),
    Device,
    Pipe,
    Unknown,
}

pub(super) struct Entries<'a> {
    stream: Stream<'a>,
    /// Number of headers read, used in error messages.
    seen: u64,
    remaining: u64,
    padding: u64,
}

/// Values of extension headers for the entry that follows them.
#[derive(Default)]
struct Extensions {
    pax: Option<PaxRecords>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

/// Returns whether a block is a tar header, that is, its checksum is correct.
pub(super) fn checksum_holds(block: &[u8]) -> bool {
    if block.len() != BLOCK {
        return false;
    }
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    // The checksum field itself counts as eight spaces.
    let expected = sum(&block[..148]) + 8 * 32 + sum(&block[156..]);
    Header::from_byte_slice(block).cksum().is_ok_and(|stated| stated == expected)
}

impl<'a> Entries<'a> {
    pub(super) fn new(stream: Stream<'a>) -> Self {
        Self { stream, seen: 0, remaining: 0, padding: 0 }
    }

    pub(super) fn stream(&self) -> &Stream<'a> {
        &self.stream
    }

    /// Reads the rest of the stream after the end mark, which must be padding.
    pub(super) fn finish(self) -> Result<(), ImageError> {
        self.stream.finish(self.seen)
    }

    /// The next entry, or `None` at the end mark.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut extensions = Extensions::default();
        loop {
            self.skip_content()?;
            let mut block = [0; BLOCK];
            self.read_exact(&mut block)?;
            if block.iter().all(|byte| *byte == 0) {
                return if extensions.is_empty() {
                    Ok(None)
                } else {
                    Err(self.malformed("an extension header belongs to no entry"))
                };
            }
            if !checksum_holds(&block) {
                return Err(match self.seen {
                    0 => ImageError::UnknownFormat { found: "a compressed file of something else" },
                    _ => self.malformed("its checksum is wrong"),
                });
            }
            self.seen += 1;
            let header = Header::from_byte_slice(&block);
            let size = self.field(header.entry_size(), "its size is not a number")?;
            match header.entry_type() {
                EntryType::XHeader if extensions.pax.is_none() => {
                    let records = self.read_extension(size, MAX_PAX)?;
                    let parsed = PaxRecords::parse(&records);
                    extensions.pax = Some(parsed.map_err(|problem| self.malformed(problem))?);
                }
                EntryType::GNULongName if extensions.long_name.is_none() => {
                    extensions.long_name = Some(self.read_long_name(size)?);
                }
                EntryType::GNULongLink if extensions.long_link.is_none() => {
                    extensions.long_link = Some(self.read_long_name(size)?);
                }
                EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink => {
                    return Err(self.malformed("it has two extension headers of one type"));
                }
                _ => return self.entry(header, size, extensions).map(Some),
            }
        }
    }

    /// Reads the current entry's content into `buffer`; returns 0 at its end.
    pub(super) fn read_content(&mut self, buffer: &mut [u8]) -> Result<usize, ImageError> {
        let length = buffer.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        self.read_exact(&mut buffer[..length])?;
        self.remaining -= length as u64;
        Ok(length)
    }

    fn entry(&mut self, header: &Header, size: u64, extensions: Extensions) -> Result<Entry, ImageError> {
        let pax = extensions.pax.unwrap_or_default();
        let kind = header.entry_type();
        let raw_name = pax.path.or(extensions.long_name).unwrap_or_else(|| header.path_bytes().into_owned());
        if pax.is_sparse || kind == EntryType::GNUSparse {
            return Err(ImageError::Sparse { name: printable(&pax.sparse_name.unwrap_or(raw_name)) });
        }
        let size = pax.size.unwrap_or(size);
        if kind.is_pax_global_extensions() {
            // Defaults for all later entries. Archives of root file systems do not use them.
            self.expect_content(size);
            return Ok(Entry { name: EntryName::parse(b".")?, kind: Kind::Unknown, mode: 0, mtime: 0, stored: size });
        }
        let name = EntryName::parse(&raw_name)?;
        let target = pax
            .link_path
            .or(extensions.long_link)
            .unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        let kind = match kind {
            EntryType::Directory => Kind::Directory,
            // Archives without a directory type mark a directory by a trailing slash.
            EntryType::Regular if raw_name.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => {
                self.expect_content(size);
                Kind::File
            }
            EntryType::Symlink => {
                check_target(&target, &name)?;
                Kind::Symlink(target)
            }
            EntryType::Link => Kind::HardLink(EntryName::parse(&target)?),
            EntryType::Char | EntryType::Block => Kind::Device,
            EntryType::Fifo => Kind::Pipe,
            _ => {
                self.expect_content(size);
                Kind::Unknown
            }
        };
        let mode = self.field(header.mode(), "its mode is not a number")?;
        let mtime = pax
            .mtime
            .unwrap_or_else(|| header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0));
        Ok(Entry { name, kind, mode, mtime, stored: self.remaining })
    }

    fn expect_content(&mut self, size: u64) {
        self.remaining = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    fn skip_content(&mut self) -> Result<(), ImageError> {
        let mut discarded = [0; 16 * 1024];
        while self.read_content(&mut discarded)? > 0 {}
        self.remaining = std::mem::take(&mut self.padding);
        self.read_content(&mut discarded).map(drop)
    }

    fn read_extension(&mut self, size: u64, limit: u64) -> Result<Vec<u8>, ImageError> {
        if size > limit {
            return Err(self.malformed("its extension header is longer than 1 MiB (pax) or 4096 bytes (long name)"));
        }
        self.expect_content(size);
        let mut content = vec![0; usize::try_from(size).unwrap_or(0)];
        self.read_content(&mut content)?;
        Ok(content)
    }

    fn read_long_name(&mut self, size: u64) -> Result<Vec<u8>, ImageError> {
        let mut name = self.read_extension(size, MAX_LONG_NAME)?;
        // GNU tar terminates the name with a NUL. A NUL in the middle is kept, and the name refused
        // later.
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ImageError> {
        if self.stream.read_full(buffer, self.seen)? < buffer.len() {
            return Err(ImageError::Truncated { entries: self.seen });
        }
        Ok(())
    }

    fn field<T>(&self, value: std::io::Result<T>, problem: &'static str) -> Result<T, ImageError> {
        value.map_err(|_| self.malformed(problem))
    }

    fn malformed(&self, problem: &'static str) -> ImageError {
        ImageError::Malformed { entry: self.seen, problem }
    }
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.pax.is_none() && self.long_name.is_none() && self.long_link.is_none()
    }
}
