//! Provides `python` as python3 on systems without a `python`.
//!
//! Debian and others install only `python3`, but many commands say `python`. If no directory of the
//! search path has a `python`, a command of that name runs python3. A box on the host's system, whose
//! command may run python by a shell, also gets a link of that name, in a layer over a directory of
//! the search path. That costs a mount, so boxes whose command does not name python have none.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringwall_jail::plan::Operation;
use ringwall_policy::Grant;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::box_layout::{AGENT_SEARCH, SEARCH};
use crate::c_string::literal;

pub(crate) const ASKED: &str = "python";
pub(crate) const INSTALLED: &str = "python3";
/// A directory that contains only the link, and the directory over which it is mounted.
const LINK_DIRECTORY: &str = "/var/python";
const LAYER_AT: &str = "/usr/local/bin";

/// The name under which the command is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Python {
    AsNamed,
    Python3,
}

impl Python {
    /// Looks into the root of the box.
    pub(crate) fn choose(grant: &Grant, root: &Path) -> Self {
        if !may_run_python(grant.argv()) {
            return Python::AsNamed;
        }
        let search = grant.env().get("PATH").map_or(OsStr::new(SEARCH), |path| path.expose());
        Self::in_root(root, search)
    }

    /// For a box whose commands are not known yet.
    pub(crate) fn in_root(root: &Path, search: &OsStr) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(root, flags, Mode::empty()) {
            Ok(root) => Self::among(search, |path| {
                // Links of an image are resolved inside it.
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

    /// The command's arguments with the first one resolved.
    pub(crate) fn argv(self, words: &[OsString]) -> impl Iterator<Item = &OsStr> {
        words.iter().enumerate().map(move |(index, word)| match (self, index) {
            (Python::Python3, 0) if word == ASKED => OsStr::new(INSTALLED),
            _ => word.as_os_str(),
        })
    }

    /// Mounts the link over the host's programs if needed.
    pub(crate) fn layer(self) -> Option<Operation> {
        let layer = Operation::Layer { own: literal(LINK_DIRECTORY), at: literal(LAYER_AT) };
        (self == Python::Python3).then_some(layer)
    }
}

/// The path of python3 if the host has no python.
pub(crate) fn find_alone() -> Option<CString> {
    if Python::in_root(Path::new("/"), OsStr::new(SEARCH)) == Python::AsNamed {
        return None;
    }
    let places = AGENT_SEARCH.split(':').map(|directory| format!("{directory}/{INSTALLED}"));
    places.into_iter().find(|path| Path::new(path).exists()).map(|path| literal(&path))
}

/// Makes the directory with the link, in a root on the host's system.
pub(crate) fn link_directory(python3: Option<&CString>) -> Vec<Operation> {
    let link = |target: &CString| {
        let at = literal(&format!("{LINK_DIRECTORY}/{ASKED}"));
        [
            Operation::Directory { at: literal(LINK_DIRECTORY), mode: 0o755 },
            Operation::Symlink { at, target: target.clone() },
        ]
    };
    python3.into_iter().flat_map(link).collect()
}

/// True if a command is python or may run it by that name. Code for an interpreter is not examined.
fn may_run_python(words: &[OsString]) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    program == ASKED || program != INSTALLED && rest.iter().any(|word| names_python(word.as_bytes()))
}

fn names_python(word: &[u8]) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(byte));
    let is_there = |(at, part): (usize, &[u8])| {
        let before = at.checked_sub(1).and_then(|before| word.get(before));
        part == ASKED.as_bytes() && !is_part(before) && !is_part(word.get(at + part.len()))
    };
    word.windows(ASKED.len()).enumerate().any(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python3_is_used_only_without_python() {
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
        let words = ["bash", "-c", "python"].map(OsString::from);
        assert_eq!(Python::Python3.argv(&words).collect::<Vec<_>>(), ["bash", "-c", "python"]);
    }

    #[test]
    fn only_commands_that_name_python_may_run_it() {
        let may_run = |words: &[&str]| may_run_python(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for words in [
            &["python"][..],
            &["bash", "-c", "python x.py"],
            &["bash", "-c", "ls|xargs python"],
            &["find", ".", "-exec", "python", "{}", "+"],
            &["bash", "-c", "/usr/bin/env python"],
            &["xargs", "python"],
        ] {
            assert!(may_run(words), "{words:?}");
        }
        for words in [
            &["python3", "-c", "import python"][..],
            &["bash", "-c", "python3 x"],
            &["bash", "-c", "cat python.md my-python"],
            &["ls"],
            &[],
        ] {
            assert!(!may_run(words), "{words:?}");
        }
    }
}
