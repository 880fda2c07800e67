//! Replaces lines of a file and leaves all other bytes as they are.
//!
//! The kernel copies the parts before and after the lines, so the file may have any size. A file
//! that ends without a newline ends without one afterwards, and the other way round: the inserted
//! text is adjusted if it becomes the end of the file. If lines are added after a last line without
//! a newline, one is inserted between them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::Stat;

use crate::error::Error;

use super::change::{Change, Content, growth_over};
use super::error::FilesError;
use super::find::{Links, file_size};
use super::open::Tree;
use super::path::AgentPath;
use super::read::{Lines, find, unreadable};
use super::write::{StagedFile, check_target};

impl Tree {
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
        let (before, after) = seam(body, range, size, last_byte(&file, size).map_err(unreadable)?);
        let splice = Splice { file, size, range, before, body, after };
        let growth = growth_over(&status, splice.length());
        Ok(Change { tree: self, path, growth, content: Content::Spliced(splice) })
    }

    /// The byte range of the lines.
    fn range_of(&self, path: &AgentPath, file: &File, status: &Stat, lines: Lines) -> Result<ByteRange, Error> {
        let size = file_size(status);
        let find = |line| find(path, file, status, line, self.workspace().line_indexes());
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

/// An existing file with some lines replaced.
#[derive(Debug)]
pub(super) struct Splice<'a> {
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
    pub(super) fn write(self, tree: &Tree) -> Result<StagedFile, Error> {
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
        splice().map_err(unreadable)?;
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
