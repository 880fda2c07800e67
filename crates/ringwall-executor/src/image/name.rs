//! Names as they stand in an archive, turned into names that can be looked up beneath a handle.
//!
//! A name that climbs (`..`), starts at the root, holds a NUL or is longer than the kernel takes is refused, never
//! repaired: an archive that holds one was not made by a tool anybody wants to trust.

use super::error::{ImageError, printable};

/// The longest component that Linux file systems take.
const MAX_COMPONENT: usize = 255;
/// PATH_MAX, with its final NUL.
const MAX_NAME_LEN: usize = 4095;
/// Deep enough for any root file system; shallow enough that nothing which walks one runs out of anything.
const MAX_DEPTH: usize = 128;

/// A relative name without `.`, `..` or empty components; empty for the root itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryName {
    bytes: Vec<u8>,
}

impl EntryName {
    pub(super) fn parse(raw: &[u8]) -> Result<Self, ImageError> {
        let refuse = |problem| ImageError::UnsafeName { name: printable(raw), problem };
        if raw.is_empty() {
            return Err(refuse("is empty"));
        }
        if raw.len() > MAX_NAME_LEN {
            return Err(refuse("is longer than 4095 bytes"));
        }
        if raw.contains(&0) {
            return Err(refuse("holds a NUL byte"));
        }
        if raw.starts_with(b"/") {
            return Err(refuse("starts at the root"));
        }
        let mut bytes = Vec::with_capacity(raw.len());
        let mut depth = 0;
        for component in raw.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => continue,
                b".." => return Err(refuse("climbs out with `..`")),
                _ if component.len() > MAX_COMPONENT => {
                    return Err(refuse("has a component longer than 255 bytes"));
                }
                _ => {}
            }
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(refuse("is nested more than 128 directories deep"));
            }
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(component);
        }
        Ok(Self { bytes })
    }

    pub(super) fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The directory that holds it (empty for the root) and its own component.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        match self.bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&self.bytes[..slash], &self.bytes[slash + 1..]),
            None => (b"", &self.bytes),
        }
    }

    /// The first component, and whether anything follows it.
    pub(super) fn top(&self) -> (&[u8], Depth) {
        match self.bytes.iter().position(|byte| *byte == b'/') {
            Some(slash) => (&self.bytes[..slash], Depth::Beneath),
            None => (&self.bytes, Depth::Itself),
        }
    }

    pub(super) fn printable(&self) -> String {
        printable(&self.bytes)
    }
}

/// Whether a name is a directory at the top or something inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Itself,
    Beneath,
}

/// A symbolic link's target: free to point anywhere, since it is only ever resolved inside a box.
pub(super) fn check_target(target: &[u8], name: &EntryName) -> Result<(), ImageError> {
    let problem = if target.is_empty() {
        "its target is empty"
    } else if target.contains(&0) {
        "its target holds a NUL byte"
    } else if target.len() > MAX_NAME_LEN {
        "its target is longer than 4095 bytes"
    } else {
        return Ok(());
    };
    Err(ImageError::Conflict { name: name.printable(), problem })
}
