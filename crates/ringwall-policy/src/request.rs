//! A request: a command, its environment, and the directories of the host that its box should see.
//!
//! A request grants nothing, so its fields are public. Arguments and paths are bytes, because the
//! kernel does not require UTF-8.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::docker_image::DockerImage;
use crate::error::{Error, quote};
use crate::permission::ProjectAccess;
use crate::session::SessionMounts;

#[derive(Debug, Clone)]
pub struct Request {
    pub argv: Vec<OsString>,
    /// The environment of the command, in addition to the variables that every box sets. The
    /// server's own environment is not inherited.
    pub env: BTreeMap<String, Secret>,
    /// Start directory of the command, as a path in the box. Default: `/workspace`, or
    /// `/workspace/work` in a project.
    pub cwd: Option<PathBuf>,
    pub root: Root,
    pub workspace: Workspace,
    /// Host directories mounted read-only into the box, at the same path.
    pub read_only: Vec<PathBuf>,
}

/// The root file system of the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// The host's system directories, read-only.
    Host,
    Image(ImageName),
    /// An image of the docker daemon. Only the docker backend can make such a box, so this variant
    /// also selects the backend.
    Docker(DockerImage),
}

/// What is mounted at `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workspace {
    /// An empty directory, deleted with the box.
    Private,
    /// A directory of the host.
    Directory(PathBuf),
    /// Three host directories, at `/workspace/inputs`, `/workspace/work` and
    /// `/workspace/artifacts`.
    Project(Box<ProjectMounts>),
    /// Two writable host directories, at `/workspace/files` and `/workspace/skills`. `/workspace`
    /// itself is read-only.
    Agent(Box<AgentMounts>),
    /// One host directory, and the allowed paths of the host at their own paths.
    Session(Box<SessionMounts>),
}

/// The host directories of a project, and the access that the box has to each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectMounts {
    pub inputs: PathBuf,
    pub work: PathBuf,
    /// Artifacts of this exec only.
    pub artifacts: PathBuf,
    pub access: ProjectAccess,
    /// Owner of the files on the host. If the server runs as root, the box runs as this user.
    pub owner: Owner,
}

/// The host directories of an agent's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentMounts {
    pub files: PathBuf,
    pub skills: PathBuf,
    /// Owner of the files on the host. If the server runs as root, the box runs as this user.
    pub owner: Owner,
}

/// A user and a group of the host. Neither is root, so no box runs as root of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    pub fn new(uid: u32, gid: u32) -> Result<Self, Error> {
        // `setresuid` and `chown` take the largest id as "unchanged", so a box would keep the
        // server's id.
        let is_somebody = |id| id != 0 && id != u32::MAX;
        if is_somebody(uid) && is_somebody(gid) { Ok(Self { uid, gid }) } else { Err(Error::OwnerRefused { uid, gid }) }
    }

    pub const fn uid(self) -> u32 {
        self.uid
    }

    pub const fn gid(self) -> u32 {
        self.gid
    }
}

/// A value that does not print, compare or serialise, so that a password in an environment variable
/// does not reach a log.
#[derive(Clone)]
pub struct Secret(OsString);

impl Secret {
    pub fn new(value: impl Into<OsString>) -> Self {
        Self(value.into())
    }

    /// The value in clear text, for the code that passes it to the box.
    pub fn expose(&self) -> &OsStr {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("•••")
    }
}

/// The name of an imported image: `[a-z0-9][a-z0-9._-]{0,63}`. It is used as a directory name; the
/// pattern excludes the empty name, hidden names and `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName(String);

impl ImageName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let letter_or_digit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let mut bytes = text.bytes();
        let well_formed = text.len() <= 64
            && bytes.next().is_some_and(|first| letter_or_digit(&first))
            && bytes.all(|byte| letter_or_digit(&byte) || b"._-".contains(&byte));
        if well_formed { Ok(Self(text.to_owned())) } else { Err(Error::ImageNameMalformed { given: quote(text) }) }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_shown_only_by_expose() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret}"), "•••");
        assert_eq!(format!("{secret:?}"), "•••");
        assert_eq!(format!("{secret:#?}"), "•••");
        assert_eq!(secret.expose(), "hunter2");
        let request = Request {
            argv: vec!["env".into()],
            env: [("PASSWORD".to_owned(), secret)].into(),
            cwd: None,
            root: Root::Host,
            workspace: Workspace::Private,
            read_only: vec![],
        };
        let shown = format!("{request:?}");
        assert!(shown.contains("PASSWORD") && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn owner_rejects_root_and_unchanged_id() {
        for (uid, gid) in [(0, 0), (0, 1000), (1000, 0), (u32::MAX, 1000), (1000, u32::MAX)] {
            assert_eq!(Owner::new(uid, gid), Err(Error::OwnerRefused { uid, gid }));
        }
        assert_eq!(Owner::new(1, 2).map(|owner| (owner.uid(), owner.gid())), Ok((1, 2)));
    }

    #[test]
    fn image_name_outside_pattern_is_rejected() {
        let longest = "a".repeat(64);
        for good in ["a", "0", "debian", "debian-12", "a..b", "a._-", longest.as_str()] {
            assert_eq!(good.parse::<ImageName>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        let too_long = "a".repeat(65);
        for bad in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "_a",
            "A",
            "aB",
            "a/b",
            "../a",
            "a b",
            "a\0",
            "ä",
            "a:1",
            "a\n",
            too_long.as_str(),
        ] {
            assert_eq!(bad.parse::<ImageName>(), Err(Error::ImageNameMalformed { given: quote(bad) }), "{bad:?}");
        }
    }
}
