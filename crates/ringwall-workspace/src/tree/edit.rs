//! Replaces text in a file if it occurs exactly as often as expected.

use std::borrow::Cow;
use std::io::{self, Read};

use memchr::memmem;

use crate::error::Error;

use super::change::{Change, Content, growth_over};
use super::error::FilesError;
use super::find::{Links, file_size};
use super::open::Tree;
use super::path::AgentPath;
use super::read::{MAX_TEXT, unreadable};
use super::write::check_target;

impl Tree {
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
        let bytes = read_within(file, MAX_TEXT).map_err(unreadable)?.ok_or_else(too_large)?;
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
