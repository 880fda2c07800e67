//! Prepares changes to one file: a new content, replaced text, or replaced lines. The caller can
//! check the disk usage of a change before anything is written.
//!
//! Text is replaced if it occurs exactly as often as expected. For replaced lines the kernel copies
//! the parts before and after them, so the file may have any size. A file that ends without a
//! newline ends without one afterwards, and the other way round: the inserted text is adjusted if it
//! becomes the end of the file. If lines are added after a last line without a newline, one is
//! inserted between them.
//!
//! The growth of a change is the size of the new file less the blocks of the file that it replaces.
//! A sparse file is written completely, so its holes count. Old and new file exist together for a
//! moment; no space is reserved for that, because the workspace's lock admits one change at a time.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use memchr::memmem;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::fs::read::file_size;
use crate::usage::Usage;

use super::error::FilesError;
use super::find::{Links, file_type};
use super::open::Tree;
use super::path::AgentPath;
use super::read::{Lines, MAX_TEXT, find};
use super::write::{StagedFile, check_target};

/// A change that was checked and can be made.
#[derive(Debug)]
#[must_use = "nothing changes before `apply`"]
pub struct Change<'a> {
    tree: &'a Tree,
    path: &'a AgentPath,
    growth: Usage,
    content: Content<'a>,
}

/// The new content of the file.
#[derive(Debug)]
enum Content<'a> {
    Whole(Cow<'a, [u8]>),
    Spliced(Splice<'a>),
}

impl Change<'_> {
    /// Additional disk usage after the change; 0 bytes if the file does not grow.
    pub fn growth(&self) -> Usage {
        self.growth
    }

    pub fn apply(self) -> Result<(), Error> {
        match self.content {
            Content::Whole(bytes) => self.tree.write(self.path, &bytes),
            Content::Spliced(splice) => self.tree.persist(splice.write(self.tree)?, self.path),
        }
    }
}

impl Tree {
    /// Estimates the additional disk usage of writing a file of `length` bytes to `path`. A box may
    /// change the file meanwhile.
    pub fn growth(&self, path: &AgentPath, length: u64) -> Usage {
        let new = Usage::of_file(length);
        match self.look(path) {
            Ok(status) => growth_over(&status, length),
            Err(_) => self.missing_parents(path).plus(new),
        }
    }

    fn look(&self, path: &AgentPath) -> rustix::io::Result<Stat> {
        let inner = path.inner().map_or(".", |inner| inner.as_str());
        let look = || beneath::locate(self.section(path.section()), inner).map(|(_, status)| status);
        match look() {
            Err(Errno::ACCESS) => {
                self.restore_path_access(path);
                look()
            }
            outcome => outcome,
        }
    }

    /// The directories that a write to `path` would create.
    fn missing_parents(&self, path: &AgentPath) -> Usage {
        let mut missing = Usage::default();
        let mut inner = path.inner().map_or("", |inner| inner.as_str());
        while let Some((parent, _)) = inner.rsplit_once('/') {
            match beneath::locate(self.section(path.section()), parent) {
                Err(Errno::NOENT) => missing = missing.plus(Usage::of_file(1)),
                _ => break,
            }
            inner = parent;
        }
        missing
    }

    /// Replaces every match of `old` if there are `expected` matches. Matches do not overlap.
    pub fn edit<'a>(&'a self, path: &'a AgentPath, old: &str, new: &str, expected: u64) -> Result<Change<'a>, Error> {
        check_target(path)?;
        if old.is_empty() {
            return Err(FilesError::EmptyOld.into());
        }
        let (file, status) = self.open_file(path, Links::Refused)?;
        let too_large = || FilesError::TooLarge { path: path.given().to_owned(), max: MAX_TEXT };
        if file_size(&status) > MAX_TEXT {
            return Err(too_large().into());
        }
        let bytes = read_within(file, MAX_TEXT).map_err(Error::UseTree)?.ok_or_else(too_large)?;
        let matches: Vec<usize> = memmem::find_iter(&bytes, old).collect();
        let found = matches.len() as u64;
        if found != expected {
            return Err(FilesError::Mismatch { old: old.to_owned(), found, expected }.into());
        }
        // Checked before allocating: many short matches can multiply the length.
        let kept = (bytes.len() - matches.len() * old.len()) as u64;
        let length = found.saturating_mul(new.len() as u64).saturating_add(kept);
        if length > MAX_TEXT {
            return Err(too_large().into());
        }
        let content = Content::Whole(Cow::Owned(replace(&bytes, &matches, old.len(), new.as_bytes())));
        Ok(Change { tree: self, path, growth: growth_over(&status, length), content })
    }

    /// Replaces lines of an existing file or, without `lines`, writes the whole file.
    pub fn replace_lines<'a>(
        &'a self,
        path: &'a AgentPath,
        lines: Option<Lines>,
        body: &'a [u8],
    ) -> Result<Change<'a>, Error> {
        check_target(path)?;
        let Some(lines) = lines else {
            let growth = self.growth(path, body.len() as u64);
            return Ok(Change { tree: self, path, growth, content: Content::Whole(Cow::Borrowed(body)) });
        };
        let (file, status) = self.open_file(path, Links::Refused)?;
        let range = self.range_of(path, &file, &status, lines)?;
        let size = file_size(&status);
        let (before, after) = seam(body, range, size, last_byte(&file, size).map_err(Error::UseTree)?);
        let splice = Splice { file, size, range, before, body, after };
        let growth = growth_over(&status, splice.length());
        Ok(Change { tree: self, path, growth, content: Content::Spliced(splice) })
    }

    /// The byte range of the lines.
    fn range_of(&self, path: &AgentPath, file: &File, status: &Stat, lines: Lines) -> Result<ByteRange, Error> {
        let size = file_size(status);
        let find = |line| find(path, file, status, line, &self.workspace().shared().line_indexes);
        let start = match find(lines.first())? {
            Some(start) => start,
            // Directly after a last line without a newline.
            None if size > 0 && find(lines.first() - 1)?.is_some_and(|last| last < size) => size,
            None => return Err(FilesError::PastEnd { line: lines.first() + 1 }.into()),
        };
        let end = match lines.end() {
            Some(line) => find(line)?.unwrap_or(size),
            None => size,
        };
        Ok(ByteRange { start, end: end.max(start) })
    }
}

/// Like [`Tree::growth`], for an existing file with this status.
fn growth_over(status: &Stat, length: u64) -> Usage {
    // Blocks of a file with other hard links are not freed.
    let is_freed = file_type(status) == FileType::RegularFile && status.st_nlink <= 1;
    let freed = if is_freed { Usage::of_blocks(status) } else { Usage::default() };
    Usage { bytes: Usage::of_file(length).bytes.saturating_sub(freed.bytes), files: 0 }
}

/// Reads everything, or returns `None` if that is more than `max` bytes: what is written back must
/// be complete, and a box may extend the file after its size was checked.
fn read_within(from: impl Read, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= max).then_some(bytes))
}

fn replace(bytes: &[u8], matches: &[usize], length: usize, new: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(bytes.len() - matches.len() * length + matches.len() * new.len());
    let mut end = 0;
    for start in matches {
        replaced.extend_from_slice(&bytes[end..*start]);
        replaced.extend_from_slice(new);
        end = start + length;
    }
    replaced.extend_from_slice(&bytes[end..]);
    replaced
}

/// An existing file with some lines replaced.
#[derive(Debug)]
struct Splice<'a> {
    file: File,
    size: u64,
    range: ByteRange,
    before: Before,
    body: &'a [u8],
    after: After,
}

impl Splice<'_> {
    /// Length of the new file.
    fn length(&self) -> u64 {
        let newlines = u64::from(self.before == Before::Newline) + u64::from(self.after == After::Newline);
        self.prefix() + self.body().len() as u64 + newlines + (self.size - self.range.end)
    }

    fn prefix(&self) -> u64 {
        self.range.start - u64::from(self.before == Before::Shortened)
    }

    fn body(&self) -> &[u8] {
        self.body.get(..self.body.len() - usize::from(self.after == After::Shortened)).unwrap_or_default()
    }

    /// Writes the new file to `.staging`.
    fn write(self, tree: &Tree) -> Result<StagedFile, Error> {
        let staged = tree.workspace().stage()?;
        let splice = || -> io::Result<()> {
            // A `&File`, so that `io::copy` lets the kernel copy from file to file.
            let mut target = staged.file();
            (&self.file).rewind()?;
            io::copy(&mut (&self.file).take(self.prefix()), &mut target)?;
            if self.before == Before::Newline {
                target.write_all(b"\n")?;
            }
            target.write_all(self.body())?;
            if self.after == After::Newline {
                target.write_all(b"\n")?;
            }
            (&self.file).seek(SeekFrom::Start(self.range.end))?;
            io::copy(&mut (&self.file).take(self.size - self.range.end), &mut target)?;
            Ok(())
        };
        splice().map_err(Error::UseTree)?;
        Ok(staged)
    }
}

/// The replaced bytes.
#[derive(Debug, Clone, Copy)]
struct ByteRange {
    start: u64,
    end: u64,
}

/// How the part before the body is adjusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    AsTheyAre,
    /// A newline is added, because lines follow a last line without one.
    Newline,
    /// Its final newline is dropped, because it becomes the end of a file that ends without one.
    Shortened,
}

/// How the body is adjusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    AsItIs,
    Newline,
    Shortened,
}

fn seam(body: &[u8], range: ByteRange, size: u64, last: Option<u8>) -> (Before, After) {
    let ends_with_newline = last == Some(b'\n');
    let is_behind_all = range.start == size && size > 0;
    if body.is_empty() {
        let is_cut = range.end == size && range.start < size && range.start > 0 && !ends_with_newline;
        return (if is_cut { Before::Shortened } else { Before::AsTheyAre }, After::AsItIs);
    }
    let before = if is_behind_all && !ends_with_newline { Before::Newline } else { Before::AsTheyAre };
    let wants_newline = range.end < size || ends_with_newline;
    let after = match (body.ends_with(b"\n"), wants_newline) {
        (false, true) => After::Newline,
        // An empty file has no ending to preserve.
        (true, false) if size > 0 => After::Shortened,
        _ => After::AsItIs,
    };
    (before, after)
}

fn last_byte(file: &File, size: u64) -> io::Result<Option<u8>> {
    let Some(offset) = size.checked_sub(1) else { return Ok(None) };
    let mut byte = [0];
    Ok((file.read_at(&mut byte, offset)? == 1).then_some(byte[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_beyond_limit_is_rejected_not_truncated() {
        let read = |length: usize| read_within(io::repeat(b'x').take(length as u64), 10).unwrap();
        assert_eq!([0, 9, 10].map(|length| read(length).map(|bytes| bytes.len())), [Some(0), Some(9), Some(10)]);
        assert_eq!([11, 100].map(read), [None, None]);
    }
}
