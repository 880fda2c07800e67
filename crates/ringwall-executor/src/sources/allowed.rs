//! Opens the paths of the host that a session may reach, by their real names.
//!
//! A path that does not exist, or is neither a file nor a directory, is left out: the list may name it before it exists. A
//! path that leads elsewhere than when the policy judged it refuses the box. A box acts on a path as its own user. On an
//! operator's entry it acts as the entry's owner, if that is a person's account and not root or a service.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringwall_jail::plan::{FileKind, Identity, MountAccess, Operation, Owner, Privilege, Source};
use ringwall_policy::{AllowedPath, Rights};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::host::mount_table;
use crate::host::mount_table::Mount;
use crate::host::real_path::where_is;
use crate::host::secrets::ORDINARY;
use crate::sources::view::Link;
use crate::sources::{Held, Opened, view};

/// One path, opened.
#[derive(Debug)]
pub(crate) struct Allowed {
    /// Its path in the box.
    pub(crate) at: PathBuf,
    pub(crate) kind: FileKind,
    pub(crate) rights: Rights,
    pub(crate) access: MountAccess,
    pub(crate) presence: Presence,
    pub(crate) opened: Opened,
}

/// Says if a box is refused when the path is missing or another file by the time the box is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    /// For entries that were found in a directory and not named by the operator.
    Optional,
}

/// Opens the paths, and reads the symbolic links of directories that are not bound as a whole. `data` is Ringwall's own
/// directory, which no list can name.
pub(crate) fn open_allowed(places: &[AllowedPath], data: Option<&Path>) -> Result<(Vec<Allowed>, Vec<Link>), Error> {
    let fail = |source| Error::OpenDirectory { path: "/proc/self/mountinfo".into(), source };
    let mounts: Vec<Mount> = if places.is_empty() { Vec::new() } else { mount_table::read().map_err(fail)? };
    let mut allowed: Vec<Allowed> = Vec::new();
    let mut links = Vec::new();
    for place in places {
        if data.is_some_and(|data| place.real.starts_with(data)) {
            return Err(Error::OwnData(place.real.clone()));
        }
        if place.real == Path::new("/") {
            // The box has its own root; only its parts are opened.
            let whole = view::open_all()?;
            allowed.extend(whole.allowed.into_iter().map(|part| Allowed { rights: place.rights, ..part }));
            links.extend(whole.links);
            continue;
        }
        let Some(one) = open(&place.at, &place.real, place.rights)? else { continue };
        // A path inside a kernel file system has no mount point below it that could be masked.
        if one.opened.is_kernel_file(&mounts) {
            continue;
        }
        // Skip a path that another entry already shows at the same place with the same rights.
        let is_shown = |other: &Allowed| {
            other.rights == one.rights
                && other.opened.owner == one.opened.owner
                && place.at == place.real
                && place.at.starts_with(&other.at)
                && other.at == other.opened.as_path()
        };
        // A link inside a shown directory works by itself.
        let is_within = |other: &Allowed| place.at != place.real && place.at.starts_with(&other.at);
        if !allowed.iter().any(|other| is_shown(other) || is_within(other)) {
            allowed.push(one);
        }
    }
    let pins = data.map_or(Ok(Vec::new()), |data| pin(&allowed, data))?;
    allowed.extend(pins);
    // A directory comes before its contents, because later mounts cover earlier ones.
    allowed.sort_by(|one, other| one.at.cmp(&other.at));
    Ok((allowed, links))
}

/// Binds each directory between a shown directory and Ringwall's data below it. A mount point cannot be renamed, so the mask
/// over the data stays in its place. The binds show no more than the directory they lie in.
fn pin(allowed: &[Allowed], data: &Path) -> Result<Vec<Allowed>, Error> {
    let above = allowed.iter().filter(|one| one.at == one.opened.as_path() && data.starts_with(&one.at));
    // The innermost of nested directories is the visible one.
    let Some(shown) = above.max_by_key(|one| one.at.components().count()) else { return Ok(Vec::new()) };
    let between = data.ancestors().skip(1).take_while(|directory| *directory != shown.at);
    let mut pins = Vec::new();
    for directory in between {
        let Some(one) = open(directory, directory, shown.rights)? else { continue };
        let rights = if one.opened.owner == shown.opened.owner { shown.rights } else { Rights::BoxUser };
        pins.push(Allowed { rights, ..one });
    }
    Ok(pins)
}

/// `None` for a path that cannot be shown: missing, out of reach, or neither a file nor a directory.
pub(crate) fn open(at: &Path, real: &Path, rights: Rights) -> Result<Option<Allowed>, Error> {
    let fail = |errno: Errno| Error::OpenDirectory { path: real.to_owned(), source: errno.into() };
    let Some(handle) = locate(real).map_err(fail)? else { return Ok(None) };
    if where_is(handle.as_fd()).map_err(fail)? != real.as_os_str().as_bytes() {
        return Err(Error::DirectoryReplaced(real.to_owned()));
    }
    let status = rustix::fs::fstat(&handle).map_err(fail)?;
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => FileKind::Directory,
        FileType::RegularFile => FileKind::File,
        // A link was put there after the policy had judged what it leads to.
        FileType::Symlink => return Err(Error::DirectoryReplaced(real.to_owned())),
        _ => return Ok(None),
    };
    let path = CString::new(real.as_os_str().as_bytes()).map_err(|_| Error::NulByte("a path"))?;
    let opened = Opened::new(path, &status, Held::Descriptor(handle));
    Ok(Some(Allowed {
        at: at.to_owned(),
        kind,
        rights,
        access: MountAccess::ReadWrite,
        presence: Presence::Required,
        opened,
    }))
}

/// `None` for a path that this process cannot reach.
fn locate(path: &Path) -> rustix::io::Result<Option<OwnedFd>> {
    match rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG) => Ok(None),
        Err(errno) => Err(errno),
    }
}

impl Allowed {
    pub(crate) fn bind(&self, identity: &Identity) -> Operation {
        let source = Source {
            path: self.opened.path.clone(),
            identity: Some(self.opened.identity),
            owner: self.owner(identity),
        };
        let at = CString::new(self.at.as_os_str().as_bytes()).unwrap_or_default();
        match self.presence {
            Presence::Optional => Operation::Entry { source, at, kind: self.kind, access: self.access },
            Presence::Required => Operation::Bind { source, at, kind: self.kind, access: self.access },
        }
    }

    /// The owner whose files the box owns. A system group gives no rights.
    fn owner(&self, identity: &Identity) -> Option<Owner> {
        let Owner { uid, gid } = self.opened.owner;
        let is_mapped = match (identity.privilege, self.rights) {
            (Privilege::Root, Rights::Owner) => ORDINARY.contains(&uid),
            (Privilege::Root, Rights::BoxUser) | (Privilege::Rootless, _) => false,
        };
        let gid = if ORDINARY.contains(&gid) { gid } else { identity.host_gid };
        is_mapped.then_some(Owner { uid, gid })
    }
}
