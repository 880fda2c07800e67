//! Replacing text in a file: exactly the matches that were expected, or nothing.

use std::io::Read;

use memchr::memmem;

use crate::error::Error;

use super::find::{Links, size_of};
use super::open::Tree;
use super::path::AgentPath;
use super::read::{TEXT_MAX, unreadable};
use super::refusal::Refusal;
use super::write::check_target;

impl Tree {
    /// Replaces every match of `old`, if there are as many as expected. Matches do not overlap.
    pub fn edit(&self, path: &AgentPath, old: &str, new: &str, expected: u64) -> Result<(), Error> {
        check_target(path)?;
        if old.is_empty() {
            return Err(Refusal::EmptyOld.into());
        }
        let (file, status) = self.open_file(path, Links::Refused)?;
        let too_large = || Refusal::TooLarge { path: path.given().to_owned(), most: TEXT_MAX };
        if size_of(&status) > TEXT_MAX {
            return Err(too_large().into());
        }
        let mut bytes = Vec::new();
        file.take(TEXT_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
        let matches: Vec<usize> = memmem::find_iter(&bytes, old).collect();
        let found = matches.len() as u64;
        if found != expected {
            return Err(Refusal::Mismatch { old: old.to_owned(), found, expected }.into());
        }
        // Before any of it is made: many short matches can become more than there is memory.
        let grown = (bytes.len() - matches.len() * old.len()) as u64;
        if found.saturating_mul(new.len() as u64).saturating_add(grown) > TEXT_MAX {
            return Err(too_large().into());
        }
        self.write(path, &replace(&bytes, &matches, old.len(), new.as_bytes()))
    }
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
