//! `python` means python3 where a system has no other.
//!
//! Debian and its kin install `python3` alone, yet everybody writes `python`. Only the command's own name is read so,
//! and only when none of the directories that will be searched has a `python` of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use policy::Grant;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::lower::SEARCH;

pub(crate) const ASKED: &str = "python";
pub(crate) const INSTALLED: &str = "python3";

/// Under which name the command is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Python {
    AsNamed,
    Python3,
}

impl Python {
    /// Looks into the root that the box will have.
    pub(crate) fn choose(grant: &Grant, root: &Path) -> Self {
        if grant.argv().first().is_none_or(|name| name != ASKED) {
            return Python::AsNamed;
        }
        let search = grant.env().get("PATH").map_or(OsStr::new(SEARCH), |path| path.expose());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(root, flags, Mode::empty()) {
            Ok(root) => Self::among(search, |path| {
                // An image's links lead where they lead inside it.
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).is_ok()
            }),
            Err(_) => Python::AsNamed,
        }
    }

    fn among(search: &OsStr, exists: impl Fn(&Path) -> bool) -> Self {
        let is_anywhere = |name: &str| {
            search
                .as_bytes()
                .split(|byte| *byte == b':')
                .filter(|directory| !directory.is_empty())
                .any(|directory| exists(&Path::new(OsStr::from_bytes(directory)).join(name)))
        };
        if !is_anywhere(ASKED) && is_anywhere(INSTALLED) { Python::Python3 } else { Python::AsNamed }
    }

    /// The words of the command with its first one settled.
    pub(crate) fn argv(self, words: &[OsString]) -> impl Iterator<Item = &OsStr> {
        words.iter().enumerate().map(move |(index, word)| match (self, index) {
            (Python::Python3, 0) => OsStr::new(INSTALLED),
            _ => word.as_os_str(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python3_stands_in_only_where_it_stands_alone() {
        let table: [(&[&str], &str, Python); 5] = [
            (&["/usr/bin/python3"], SEARCH, Python::Python3),
            (&["/usr/bin/python", "/usr/bin/python3"], SEARCH, Python::AsNamed),
            (&["/usr/bin/python3", "/usr/local/bin/python"], SEARCH, Python::AsNamed),
            (&[], SEARCH, Python::AsNamed),
            (&["/usr/bin/python3"], "/opt/a::/opt/b", Python::AsNamed),
        ];
        for (installed, search, expected) in table {
            let found = Python::among(OsStr::new(search), |path| installed.iter().any(|one| path == Path::new(one)));
            assert_eq!(found, expected, "{installed:?} in {search}");
        }
    }

    #[test]
    fn only_the_name_of_the_command_changes() {
        let words = ["python", "-c", "python"].map(OsString::from);
        assert_eq!(Python::Python3.argv(&words).collect::<Vec<_>>(), ["python3", "-c", "python"]);
        assert_eq!(Python::AsNamed.argv(&words).collect::<Vec<_>>(), ["python", "-c", "python"]);
    }
}
