//! Converts names of an archive into names that can be looked up beneath a handle.
//!
//! A name that is absolute, contains `..` or a NUL, or is too long for the kernel is refused, not
//! repaired: ordinary tools do not write such names.

use super::error::{ImageError, printable};

/// NAME_MAX of Linux file systems.
const MAX_COMPONENT: usize = 255;
/// PATH_MAX without its terminating NUL.
const MAX_NAME_LEN: usize = 4095;
/// Deep enough for any root file system, and shallow enough for recursive tools.
const MAX_DEPTH: usize = 128;

/// A relative name without `.`, `..` and empty components; empty for the root itself.
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
            return Err(refuse("contains a NUL byte"));
        }
        if raw.starts_with(b"/") {
            return Err(refuse("is absolute"));
        }
        let mut bytes = Vec::with_capacity(raw.len());
        let mut depth = 0;
        for component in raw.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => continue,
                b".." => return Err(refuse("contains `..`")),
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

    /// The parent directory (empty for the root) and the last component.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        match self.bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&self.bytes[..slash], &self.bytes[slash + 1..]),
            None => (b"", &self.bytes),
        }
    }

    /// The first component, and whether further ones follow.
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

/// Position of a name: at the top of the root, or beneath a directory there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Itself,
    Beneath,
}

/// Checks the target of a symbolic link. It may point anywhere, since it is only resolved inside a
/// box.
pub(super) fn check_target(target: &[u8], name: &EntryName) -> Result<(), ImageError> {
    let problem = if target.is_empty() {
        "its target is empty"
    } else if target.contains(&0) {
        "its target contains a NUL byte"
    } else if target.len() > MAX_NAME_LEN {
        "its target is longer than 4095 bytes"
    } else {
        return Ok(());
    };
    Err(ImageError::Conflict { name: name.printable(), problem })
}
