//! Opens the directories that a grant names and holds them until the box has started.
//!
//! The policy judged real paths. If a path now leads elsewhere, a link was swapped in between, and
//! the box is refused. The open handle keeps the inode from being reused before the jail compares
//! it.

pub(crate) mod allowed;
mod private_files;
pub(crate) mod view;

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringwall_jail::plan::{FileIdentity, FileKind, MountAccess, Owner, UnixSockets};
use ringwall_policy::{
    Access, AgentMounts, Grant, HostView, PathControl, ProjectMounts, Root, SessionMounts, Workspace,
};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::box_layout::{AGENT_FILES, AGENT_SKILLS, WORKSPACE};
use crate::error::Error;
use crate::host;
use crate::host::Covered;
use crate::host::mount_table;
use crate::host::mount_table::Mount;
use crate::host::python::Python;
use crate::host::real_path::{find_path, where_is};
use crate::image::{HeldImage, Store};
use crate::sources::allowed::{Allowed, open_allowed};
use crate::sources::view::{Link, Shown};

/// How long reading a view of the host may take, waiting for other readers included.
const HOST_VIEW_TIMEOUT: Duration = Duration::from_secs(30);
/// How many views of the host are read at once.
static VIEW_READERS: Semaphore = Semaphore::const_new(4);

/// Everything that a plan mounts from outside the system directories.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) workspace: Option<Opened>,
    /// The directories of a project or of an agent's files; empty if the workspace is one
    /// directory.
    pub(crate) project: Vec<ProjectPath>,
    pub(crate) read_only: Vec<Opened>,
    /// Paths of the host that a session may reach, each before those inside it.
    pub(crate) allowed: Vec<Allowed>,
    /// Symbolic links beside them, where a directory of the host is shown entry by entry.
    pub(crate) links: Vec<Link>,
    /// Paths to mask below any directory of the host that the box shows.
    pub(crate) covered: Vec<Covered>,
    /// Refused if the box sees a directory of the host.
    pub(crate) unix_sockets: UnixSockets,
    pub(crate) image: Option<Opened>,
    pub(crate) python: Python,
}

/// One directory of a project at its path in the box; `content` is `None` if the box may not see
/// it.
#[derive(Debug)]
pub(crate) struct ProjectPath {
    pub(crate) at: &'static str,
    pub(crate) content: Option<(Opened, MountAccess)>,
}

/// An open file or directory of the host.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: CString,
    pub(crate) identity: FileIdentity,
    pub(crate) owner: Owner,
    /// Keeps the inode in use; see the head of this file.
    held: Held,
}

#[derive(Debug)]
pub(crate) enum Held {
    /// An O_PATH descriptor of a directory or file.
    Descriptor(OwnedFd),
    Image(HeldImage),
    /// The identity is still compared, but its inode number may have been reused by a user who may write to the parent
    /// directory.
    Nothing,
}

impl Opened {
    pub(crate) fn new(path: CString, status: &Stat, held: Held) -> Self {
        let identity = FileIdentity { device: status.st_dev, inode: status.st_ino };
        Opened { path, identity, owner: Owner { uid: status.st_uid, gid: status.st_gid }, held }
    }

    /// The path on the host.
    pub(crate) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.path.as_bytes()))
    }

    /// Checks that a directory below it exists and is reached through no link.
    pub(crate) fn find_directory(&self, below: &Path) -> rustix::io::Result<()> {
        let top = match &self.held {
            Held::Descriptor(handle) => handle.as_fd(),
            Held::Image(image) => image.as_fd(),
            Held::Nothing => return Err(Errno::NOENT),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(top, below, flags, Mode::empty(), resolve).map(drop)
    }

    /// True if it lies on a kernel file system. True also if it is not held open, because its mount is then unknown.
    pub(crate) fn is_kernel_file(&self, mounts: &[Mount]) -> bool {
        match &self.held {
            Held::Descriptor(handle) => mount_table::is_kernel_file(handle.as_fd(), mounts),
            Held::Image(_) => false,
            Held::Nothing => true,
        }
    }

    /// Closes the handle, for a box with so many sources that the server could run out of descriptors.
    pub(crate) fn release(&mut self) {
        self.held = Held::Nothing;
    }

    #[cfg(test)]
    pub(crate) fn pretend(path: &std::ffi::CStr, owner: u32) -> Self {
        let identity = FileIdentity { device: 1, inode: 2 };
        Opened { path: path.to_owned(), identity, owner: Owner { uid: owner, gid: owner }, held: Held::Nothing }
    }
}

impl Sources {
    /// `data` is Ringwall's own directory, which no grant can name.
    pub(crate) async fn open(grant: &Grant, images: &Store, data: Option<&Path>) -> Result<Self, Error> {
        let open = |path: &PathBuf| match data {
            Some(data) if path.starts_with(data) => Err(Error::OwnData(path.clone())),
            _ => open(path),
        };
        let (workspace, project) = match grant.workspace() {
            Workspace::Private => (None, Vec::new()),
            Workspace::Directory(path) => (Some(open(path)?), Vec::new()),
            Workspace::Project(mounts) => (None, open_project(mounts, data)?),
            Workspace::Agent(mounts) => (None, open_agent(mounts, data)?),
            Workspace::Session(mounts) => (Some(open_in_data(&mounts.work, data)?), Vec::new()),
        };
        let Shown { allowed, links, mut covered, .. } = match grant.workspace() {
            Workspace::Session(mounts) => open_session_paths(mounts, data).await?,
            Workspace::Private | Workspace::Directory(_) | Workspace::Project(_) | Workspace::Agent(_) => {
                Shown::default()
            }
        };
        // Workspaces that the server made hold no mounts.
        let shows_host = matches!(grant.workspace(), Workspace::Directory(_))
            || !grant.read_only().is_empty()
            || !allowed.is_empty();
        if shows_host {
            covered.extend(host::all_kernel_mounts()?);
        }
        // A directory of the host may contain the socket of a daemon or key agent, and connecting
        // means acting as its user. No mount option or file right separates that from opening a
        // file.
        let sees_host = allowed.iter().any(|allowed| allowed.kind == FileKind::Directory);
        let unix_sockets = if sees_host { UnixSockets::Refused } else { UnixSockets::Allowed };
        let image = match grant.root() {
            Root::Host => None,
            Root::Image(_) if matches!(grant.workspace(), Workspace::Agent(_) | Workspace::Session(_)) => {
                return Err(Error::OnlyOnTheHost);
            }
            Root::Image(name) => Some(open_image(images, name)?),
            Root::Docker(image) => return Err(Error::OnlyForDocker(image.clone())),
        };
        let read_only = grant.read_only().iter().map(open).collect::<Result<_, _>>()?;
        let python = Python::choose(grant, image.as_ref().map_or(Path::new("/"), Opened::as_path));
        Ok(Sources { workspace, project, read_only, allowed, links, covered, unix_sockets, image, python })
    }
}

/// The owner of the files that the box works on, which is also the box's user.
pub(crate) fn owner(grant: &Grant) -> Option<Owner> {
    match grant.workspace() {
        Workspace::Project(mounts) => Some(mounts.owner),
        Workspace::Agent(mounts) => Some(mounts.owner),
        Workspace::Session(mounts) => Some(mounts.owner),
        Workspace::Private | Workspace::Directory(_) => None,
    }
    .map(|owner| Owner { uid: owner.uid(), gid: owner.gid() })
}

/// Opens the mounts of backends other than the native one: the directories of a project, or of a session.
pub(crate) fn open_mounts(grant: &Grant, data: Option<&Path>) -> Result<Vec<ProjectPath>, Error> {
    match grant.workspace() {
        Workspace::Project(mounts) => open_project(mounts, data),
        Workspace::Session(mounts) => Ok(vec![session_path(open_in_data(&mounts.work, data)?)]),
        Workspace::Private | Workspace::Directory(_) | Workspace::Agent(_) => Ok(Vec::new()),
    }
}

/// The session's directory as the only mount of its box.
pub(crate) fn session_path(opened: Opened) -> ProjectPath {
    ProjectPath { at: WORKSPACE, content: Some((opened, MountAccess::ReadWrite)) }
}

/// True if a session has only its own directory of the host; other backends can mount no more.
pub(crate) fn has_own_directory_only(mounts: &SessionMounts) -> bool {
    match &mounts.control {
        PathControl::On(access) => access.mounts.is_empty(),
        PathControl::Off(_) => false,
    }
}

/// Projects lie inside the data directory. Only a mount that contains all of it is refused.
pub(crate) fn open_project(mounts: &ProjectMounts, data: Option<&Path>) -> Result<Vec<ProjectPath>, Error> {
    let directories = [
        ("/workspace/inputs", &mounts.inputs, mounts.access.inputs),
        ("/workspace/work", &mounts.work, mounts.access.work),
        ("/workspace/artifacts", &mounts.artifacts, mounts.access.artifacts),
    ];
    let open = |path: &PathBuf| open_in_data(path, data);
    let places = directories.into_iter().map(|(at, path, access)| {
        let content = match access {
            Access::Empty => None,
            Access::ReadOnly => Some((open(path)?, MountAccess::ReadOnly)),
            Access::ReadWrite => Some((open(path)?, MountAccess::ReadWrite)),
        };
        Ok(ProjectPath { at, content })
    });
    places.collect()
}

/// Both are writable. Their parent is not part of the agent's files, so it is read-only.
fn open_agent(mounts: &AgentMounts, data: Option<&Path>) -> Result<Vec<ProjectPath>, Error> {
    let places = [(AGENT_FILES, &mounts.files), (AGENT_SKILLS, &mounts.skills)].into_iter();
    places
        .map(|(at, path)| Ok(ProjectPath { at, content: Some((open_in_data(path, data)?, MountAccess::ReadWrite)) }))
        .collect()
}

/// Opens the paths of the host that a session may reach, and finds the hidden ones among them.
async fn open_session_paths(mounts: &SessionMounts, data: Option<&Path>) -> Result<Shown, Error> {
    let mut shown = match &mounts.control {
        PathControl::On(access) => {
            let (allowed, links) = open_allowed(&access.mounts, data)?;
            Shown { allowed, links, ..Shown::default() }
        }
        PathControl::Off(view) => open_view(*view).await?,
    };
    let hidden = mounts.hidden.iter().filter_map(|path| find_path(path));
    shown.covered.extend(hidden.map(|place| Covered { path: place.path, kind: place.kind.mounted_as() }));
    Ok(shown)
}

/// Opens a view of the host on another thread: rootless it reads up to 100,000 names, from file systems that may not answer.
async fn open_view(view: HostView) -> Result<Shown, Error> {
    within(HOST_VIEW_TIMEOUT, &VIEW_READERS, move || view::open(view)).await
}

/// Runs `read` on a thread for blocking work and waits at most `timeout`. The thread cannot be stopped: it keeps its permit
/// until `read` returns, so file systems that never answer hold as many threads as there are permits and no more.
async fn within<T: Send + 'static>(
    timeout: Duration,
    permits: &'static Semaphore,
    read: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let reading = async {
        let permit = permits.acquire().await;
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read()
        });
        task.await.unwrap_or_else(|error| Err(Error::ReadHostView(error)))
    };
    tokio::time::timeout(timeout, reading).await.unwrap_or(Err(Error::HostViewTimeout { timeout }))
}

fn open_in_data(path: &Path, data: Option<&Path>) -> Result<Opened, Error> {
    match data {
        Some(data) if data.starts_with(path) => Err(Error::OwnData(path.to_owned())),
        _ => open(path),
    }
}

/// Checks that the working directory exists and is reached through no link. Docker and gVisor would
/// create a missing one as root, and a planted link (`/proc/self/fd/7`) made runtimes leave the
/// container (CVE-2024-21626).
pub(crate) fn check_working_directory(grant: &Grant, project: &[ProjectPath]) -> Result<(), Error> {
    let inside = grant.cwd();
    let below = project.iter().find_map(|place| Some((place, inside.strip_prefix(place.at).ok()?)));
    let Some((place, rest)) = below else { return Err(Error::DirectoryMissing(inside.to_owned())) };
    match &place.content {
        _ if rest.as_os_str().is_empty() => Ok(()),
        None => Err(Error::DirectoryMissing(inside.to_owned())),
        Some((opened, _)) => opened.find_directory(rest).map_err(|errno| match errno {
            Errno::LOOP => Error::DirectoryIsLink(inside.to_owned()),
            Errno::NOTDIR => Error::NotADirectory(inside.to_owned()),
            _ => Error::DirectoryMissing(inside.to_owned()),
        }),
    }
}

/// Holds the image, so that it cannot be removed while the box starts.
fn open_image(images: &Store, name: &ringwall_policy::ImageName) -> Result<Opened, Error> {
    let image = images.hold(name)?;
    let path = image.path().to_owned();
    let fail = |errno: Errno| Error::OpenDirectory { path: path.clone(), source: errno.into() };
    let real = where_is(image.as_fd()).map_err(fail)?;
    let status = rustix::fs::fstat(&image).map_err(fail)?;
    let path = CString::new(real).map_err(|_| Error::NulByte("a path"))?;
    Ok(Opened::new(path, &status, Held::Image(image)))
}

/// Opens a real path; a path that contains a link is refused.
fn open(path: &Path) -> Result<Opened, Error> {
    let handle = open_directory(path)?;
    let fail = |errno: Errno| Error::OpenDirectory { path: path.to_owned(), source: errno.into() };
    if where_is(handle.as_fd()).map_err(fail)? != path.as_os_str().as_bytes() {
        return Err(Error::DirectoryReplaced(path.to_owned()));
    }
    rustix::fs::accessat(&handle, c".", rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|_| Error::DirectoryUnreadable(path.to_owned()))?;
    let status = rustix::fs::fstat(&handle).map_err(fail)?;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::NulByte("a path"))?;
    Ok(Opened::new(path, &status, Held::Descriptor(handle)))
}

/// The real path of a directory, absolute and without links. The policy judges this path.
pub fn real_path(path: &Path) -> Result<PathBuf, Error> {
    let handle = open_directory(path)?;
    let bytes = where_is(handle.as_fd())
        .map_err(|errno| Error::OpenDirectory { path: path.to_owned(), source: errno.into() })?;
    Ok(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// The real path of our own directory, which may lie behind a link of the operator.
pub(crate) fn follow(path: &Path) -> Option<PathBuf> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    where_is(handle.as_fd()).ok().map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// The last component must be a directory. A link is refused and not followed, because its owner
/// could choose what the box sees.
fn open_directory(path: &Path) -> Result<OwnedFd, Error> {
    // Drops a trailing slash, which would make the kernel follow a link as last component.
    let path: PathBuf = path.components().collect();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => Error::DirectoryMissing(path),
        Errno::NOTDIR if path.is_symlink() => Error::DirectoryIsLink(path),
        Errno::NOTDIR => Error::NotADirectory(path),
        Errno::ACCESS => Error::DirectoryUnreadable(path),
        errno => Error::OpenDirectory { path, source: errno.into() },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn view_that_is_not_read_in_time_is_refused() {
        static READERS: Semaphore = Semaphore::const_new(1);
        let (release, released) = mpsc::channel::<()>();
        let stuck = within(Duration::from_millis(20), &READERS, move || {
            let _ = released.recv();
            Ok(())
        });
        let error = stuck.await.unwrap_err();
        assert!(matches!(error, Error::HostViewTimeout { .. }), "{error}");
        assert!(error.hint().is_some());
        // The stuck thread still has the only permit: the next view starts no second thread.
        let next = within(Duration::from_millis(20), &READERS, || -> Result<(), Error> { panic!("started") });
        assert!(matches!(next.await, Err(Error::HostViewTimeout { .. })));
        drop(release);
        let after = within(Duration::from_secs(60), &READERS, || Ok(7));
        assert_eq!(after.await.unwrap(), 7);
    }
}
