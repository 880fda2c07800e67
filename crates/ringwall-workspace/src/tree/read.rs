//! Reads the text of a file, or a page of its lines.
//!
//! A line ends with `\n` only, so joined lines are the file. A page may show a write of a box half
//! done; writes of the API replace the whole file and are never seen in part. The memory for file
//! contents in responses is limited over all workspaces: short texts are not counted, and a request
//! for a long one that does not fit is rejected as busy.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::Stat;

use crate::error::Error;
use crate::fs::read::file_size;
use crate::workspaces::Shared;

use super::error::FilesError;
use super::find::Links;
use super::lines::{LineFinder, LineIndexCache, STRIDE, read_up_to};
use super::open::Tree;
use super::path::AgentPath;

/// Limit of one response. Its JSON needs about the same memory again.
pub(super) const MAX_TEXT: u64 = 64 << 20;
/// Counting the lines of larger files would block changes to the workspace for too long.
const MAX_COUNTED: u64 = 16 << 30;
/// Texts up to this length do not count towards the memory limit.
const MAX_UNCOUNTED_BYTES: u64 = 1 << 20;
/// Memory limit of all longer texts: eight of the maximum length.
const MAX_TOTAL_BYTES: u64 = 512 << 20;

/// A range of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines {
    /// Counted from 0.
    first: u64,
    /// `None`: to the end of the file.
    count: Option<u64>,
}

impl Lines {
    pub const ALL: Lines = Lines { first: 0, count: None };

    /// `limit` lines from line `offset` on, which is counted from 1.
    pub fn page(offset: Option<u64>, limit: Option<u64>) -> Result<Self, FilesError> {
        let first = offset.unwrap_or(1).checked_sub(1).ok_or(FilesError::CountFromOne { key: "offset" })?;
        if limit == Some(0) {
            return Err(FilesError::CountFromOne { key: "limit" });
        }
        Ok(Self { first, count: limit })
    }

    /// Lines `start` to `end`, counted from 1, both included.
    pub fn range(start: Option<u64>, end: Option<u64>) -> Result<Self, FilesError> {
        let first = start.unwrap_or(1).checked_sub(1).ok_or(FilesError::CountFromOne { key: "start" })?;
        let count = match end {
            None => None,
            Some(end) if end > first => Some(end - first),
            Some(0) => return Err(FilesError::CountFromOne { key: "end" }),
            Some(_) => return Err(FilesError::Backwards),
        };
        Ok(Self { first, count })
    }

    pub(super) fn first(self) -> u64 {
        self.first
    }

    /// The line after the range; `None` if it extends to the end of the file.
    pub(super) fn end(self) -> Option<u64> {
        self.count.map(|count| self.first.saturating_add(count))
    }
}

/// Lines of a file.
#[derive(Debug)]
pub struct Text {
    content: String,
    count: usize,
    /// Held while the text exists, if it is long.
    _share: Option<TextShare>,
}

impl Text {
    /// The joined lines. Ends with a newline only if the file ends here with one.
    pub fn content(&self) -> &str {
        &self.content
    }

    pub fn into_content(self) -> String {
        self.content
    }

    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.content.split('\n').take(self.count)
    }
}

impl Tree {
    /// Reads lines of a file. Lines beyond the end of the file are left out.
    pub fn read(&self, path: &AgentPath, lines: Lines) -> Result<Text, Error> {
        let (file, status) = self.open_file(path, Links::Followed)?;
        let Part { bytes, count, share } = read_lines(path, &file, &status, lines, self.workspace().shared())?;
        let content = String::from_utf8(bytes).map_err(|_| FilesError::NotText(path.given().to_owned()))?;
        Ok(Text { content, count, _share: share })
    }
}

#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    count: usize,
    share: Option<TextShare>,
}

fn read_lines(path: &AgentPath, file: &File, status: &Stat, lines: Lines, shared: &Shared) -> Result<Part, Error> {
    let size = file_size(status);
    let too_large = || Error::from(FilesError::TooLarge { path: path.given().to_owned(), max: MAX_TEXT });
    let Some(start) = find(path, file, status, lines.first, &shared.line_indexes)?.filter(|start| *start < size) else {
        return Ok(Part::default());
    };
    if lines.count.is_none() && size - start > MAX_TEXT {
        return Err(too_large());
    }
    let (mut bytes, mut share) = (Vec::new(), None);
    let mut buffer = vec![0; first_look(lines, size - start)];
    let mut left = lines.count.unwrap_or(u64::MAX);
    let (mut offset, mut count) = (start, 0);
    loop {
        let piece = read_up_to(file, &mut buffer, offset, size - offset).map_err(Error::UseTree)?;
        if piece.is_empty() {
            break;
        }
        let mut taken = piece.len();
        for newline in memchr::memchr_iter(b'\n', piece) {
            (left, count) = (left - 1, count + 1);
            if left == 0 {
                taken = newline + 1;
                break;
            }
        }
        if (bytes.len() + taken) as u64 > MAX_TEXT {
            return Err(too_large());
        }
        if share.is_none() && (bytes.len() + taken) as u64 > MAX_UNCOUNTED_BYTES {
            let longest = (size - start).min(MAX_TEXT);
            share =
                Some(shared.text_memory.acquire(longest).ok_or_else(|| FilesError::Crowded(path.given().to_owned()))?);
            // Reserved at once, because growing the buffer step by step would copy it repeatedly.
            bytes.reserve_exact(usize::try_from(longest).unwrap_or_default());
        }
        bytes.extend_from_slice(&piece[..taken]);
        offset += taken as u64;
        if left == 0 {
            break;
        }
        buffer.resize(STRIDE, 0);
    }
    let is_at_end = offset >= size;
    match bytes.last() {
        Some(b'\n') if !is_at_end => drop(bytes.pop()),
        Some(b'\n') | None => {}
        // The last line has no newline.
        Some(_) => count += 1,
    }
    Ok(Part { bytes, count, share })
}

/// A short page usually lies in the first few KiB.
fn first_look(lines: Lines, rest: u64) -> usize {
    let max = if lines.count.is_some_and(|count| count <= 100) { 16 * 1024 } else { STRIDE };
    usize::try_from(rest).map_or(max, |rest| rest.min(max)).max(1)
}

/// The offset of a line.
pub(super) fn find(
    path: &AgentPath,
    file: &File,
    status: &Stat,
    line: u64,
    indexes: &LineIndexCache,
) -> Result<Option<u64>, Error> {
    if line > 0 && file_size(status) > MAX_COUNTED {
        return Err(FilesError::TooLarge { path: path.given().to_owned(), max: MAX_COUNTED }.into());
    }
    LineFinder::new(file, status, indexes).start_of(line).map_err(Error::UseTree)
}

/// The memory in use. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextMemory {
    taken: Arc<AtomicU64>,
}

/// A share of the memory, released when dropped.
#[derive(Debug)]
struct TextShare {
    memory: TextMemory,
    bytes: u64,
}

impl TextMemory {
    fn acquire(&self, bytes: u64) -> Option<TextShare> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= MAX_TOTAL_BYTES);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(TextShare { memory: self.clone(), bytes })
    }
}

impl Drop for TextShare {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspaces::{Owner, Workspaces};

    #[test]
    fn long_texts_share_memory_limit() {
        let directory = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&directory.path().join("w")).unwrap();
        let open = |agent: &str| {
            let workspace = workspaces.workspace(&"u".parse().unwrap(), &agent.parse().unwrap(), Owner::server());
            workspace.unwrap().tree().unwrap()
        };
        let (tree, other) = (open("a"), open("b"));
        let (long, short) = (AgentPath::parse("files/long").unwrap(), AgentPath::parse("files/short").unwrap());
        for tree in [&tree, &other] {
            tree.write(&long, &[b'x'; 3 << 20]).unwrap();
            tree.write(&short, b"short\n").unwrap();
        }
        let rest = tree.workspace().shared().text_memory.acquire((512 << 20) - (5 << 20)).unwrap();
        let held = tree.read(&long, Lines::ALL).unwrap();
        assert_eq!(held.content().len(), 3 << 20);
        // The limit is shared by all workspaces and applies to long texts only.
        for tree in [&tree, &other] {
            let refused = tree.read(&long, Lines::ALL).unwrap_err();
            assert!(matches!(&refused, Error::Files(FilesError::Crowded(path)) if path == "files/long"), "{refused:?}");
            assert_eq!(tree.read(&short, Lines::ALL).unwrap().content(), "short\n");
        }
        drop(held);
        drop(other.read(&long, Lines::ALL).unwrap());
        drop(rest);
        assert!(tree.workspace().shared().text_memory.acquire(512 << 20).is_some(), "all memory was released");
    }
}
