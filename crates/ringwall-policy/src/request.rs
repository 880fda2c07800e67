//! What is wanted: a command, its surroundings, and what of the host it may see.
//!
//! A request is a question and carries no power; its members are open to whoever puts one together. Text that goes to
//! the kernel stays bytes, because file names and arguments need not be UTF-8.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::docker_image::DockerImage;
use crate::error::{Error, quote};
use crate::permission::Mounts;
use crate::session::SessionMounts;

#[derive(Debug, Clone)]
pub struct Request {
    pub argv: Vec<OsString>,
    /// The whole environment of the command, beside what every box sets; nothing is inherited.
    pub env: BTreeMap<String, Secret>,
    /// Where the command starts, as the box sees it; `/workspace` unless said, in a project `/workspace/work`.
    pub cwd: Option<PathBuf>,
    pub root: Root,
    pub workspace: Workspace,
    /// Directories of the host that the box sees, at the same place, and cannot change.
    pub read_only: Vec<PathBuf>,
}

/// The root file system of the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// The host's programs, read-only.
    Host,
    Image(ImageName),
    /// An image of the docker daemon's. It also names the backend: nobody else can make a box of it, so that a box
    /// which was granted for docker never comes from elsewhere.
    Docker(DockerImage),
}

/// What appears at `/workspace`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workspace {
    /// An empty one that is gone afterwards.
    Private,
    /// A directory of the host.
    Directory(PathBuf),
    /// Three directories of the host, at `/workspace/inputs`, `/workspace/work` and `/workspace/artifacts`.
    Project(Box<ProjectMounts>),
    /// Two directories of the host, at `/workspace/files` and `/workspace/skills`, to read and write. `/workspace` itself
    /// cannot be written to.
    Agent(Box<AgentMounts>),
    /// One directory of the host, and with it the paths of the host that are allowed, at their own places.
    Session(Box<SessionMounts>),
}

/// The directories of a project on the host, and what a box may do in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectMounts {
    pub inputs: PathBuf,
    pub work: PathBuf,
    /// This exec's own.
    pub artifacts: PathBuf,
    pub access: Mounts,
    /// To whom the files belong, and so who the box is to the host.
    pub owner: Owner,
}

/// The directories of an agent's files on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentMounts {
    pub files: PathBuf,
    pub skills: PathBuf,
    /// To whom the files belong, and so who the box is to the host.
    pub owner: Owner,
}

/// A user and a group of the host, neither of them root: a box never runs with the ids that own the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    pub fn new(uid: u32, gid: u32) -> Result<Self, Error> {
        // The largest number means "unchanged" to the kernel's calls, which would leave a box with our own id.
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

/// A value that does not print, compare or serialise. Environment values often are passwords, and a log that never
/// gets them cannot leak them.
#[derive(Clone)]
pub struct Secret(OsString);

impl Secret {
    pub fn new(value: impl Into<OsString>) -> Self {
        Self(value.into())
    }

    /// The value itself. For the one place that hands it to the box.
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

/// The name of an imported image: `[a-z0-9][a-z0-9._-]{0,63}`. It names a directory, so it can be neither empty nor
/// hidden, and no name can be `..`.
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
    fn a_secret_shows_itself_only_when_asked() {
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
    fn nobody_is_root() {
        for (uid, gid) in [(0, 0), (0, 1000), (1000, 0), (u32::MAX, 1000), (1000, u32::MAX)] {
            assert_eq!(Owner::new(uid, gid), Err(Error::OwnerRefused { uid, gid }));
        }
        assert_eq!(Owner::new(1, 2).map(|owner| (owner.uid(), owner.gid())), Ok((1, 2)));
    }

    #[test]
    fn image_names_are_plain() {
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
