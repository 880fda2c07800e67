//! Receives a container's proxy socket through a Unix socket that is mounted into that container
//! only.
//!
//! The daemon makes the container's network namespace, so an entrypoint shim inside
//! (`ringwall_jail::shim`) opens the listening proxy socket and sends it through the Unix socket.
//! The proxy then works as for any other box. The Unix socket accepts one connection, before the
//! command runs, and is deleted then. It lies in our data directory, which other users and boxes
//! cannot reach. Its name identifies the server process, so that [`sweep`] deletes those of killed
//! servers only.

use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ringwall_jail::report::Report;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use tokio::net::UnixStream;

use super::instance::{ContainerOwner, Instance};
use crate::counters::{Acceptor, register};
use crate::egress;
use crate::error::{Error, talk};
use crate::process;

const DIRECTORY: &str = "ways-out";
/// One shim connects, once.
const BACKLOG: i32 = 1;

/// The listening socket, before a shim has connected.
#[derive(Debug)]
pub(crate) struct ProxySocketReceiver {
    listener: OwnedFd,
    path: SocketPath,
}

/// The socket's path, deleted on drop.
#[derive(Debug)]
struct SocketPath(PathBuf);

impl ProxySocketReceiver {
    pub(crate) fn open(data: &Path, instance: &Instance) -> Result<Self, Error> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let name = instance.file_name(OPENED.fetch_add(1, Ordering::Relaxed));
        let path = data.join(DIRECTORY).join(&name);
        open(data, &name, &path).map_err(|source| Error::OpenProxySocketReceiver { path, source })
    }

    /// The source of the mount.
    pub(crate) fn path(&self) -> &Path {
        &self.path.0
    }

    /// Waits for the shim's proxy socket, and returns when the shim has executed the command.
    /// `command` names it in the error if it cannot be executed.
    pub(crate) async fn receive(self, command: &str) -> Result<OwnedFd, Error> {
        let Self { listener, path } = self;
        let connection = async {
            let (connection, _) = Acceptor::new(listener).await?.accept().await?;
            register(connection, |connection| UnixStream::from_std(connection.into())).await
        };
        let connection = connection.await.map_err(Error::Talk)?;
        // No second connection is possible: the listener is closed and the socket deleted.
        drop(path);
        let mut proxy_socket = None;
        loop {
            match process::receive(&connection).await? {
                Some((Report::ProxySocket, descriptors)) => {
                    let socket = descriptors.into_iter().next().ok_or(Error::NoProxySocket)?;
                    proxy_socket = Some(check(socket)?);
                }
                Some((Report::NotExecuted { errno, .. }, _)) => return Err(Error::not_executed(command, errno)),
                Some((Report::Failed(failure), _)) => return Err(Error::Setup(failure)),
                Some((
                    Report::Holding(_)
                    | Report::Terminal
                    | Report::Waiting
                    | Report::Started { .. }
                    | Report::Ended { .. },
                    _,
                )) => return Err(Error::NoProxySocket),
                None => return proxy_socket.ok_or(Error::NoProxySocket),
            }
        }
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Deletes the sockets of servers that are dead.
pub(crate) fn sweep(data: &Path, instance: &Instance) {
    let Ok(entries) = std::fs::read_dir(data.join(DIRECTORY)) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_none_or(|name| instance.owner_of(name) == ContainerOwner::Gone) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn open(data: &Path, name: &str, path: &Path) -> std::io::Result<ProxySocketReceiver> {
    let directory = data.join(DIRECTORY);
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let directory =
        rustix::fs::open(&directory, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // A socket address holds at most 107 bytes, which the path of the data directory may exceed.
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    rustix::net::bind(&socket, &SocketAddrUnix::new(&short)?)?;
    let path = SocketPath(path.to_owned());
    // 0666 because the container's user may be any uid on the host. The directory has mode 0700 and
    // keeps others out.
    std::fs::set_permissions(&short, Permissions::from_mode(0o666))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(ProxySocketReceiver { listener: socket, path })
}

/// Accepts only a listening TCP socket at the proxy's address, and makes it non-blocking so that
/// `accept` cannot block.
fn check(socket: OwnedFd) -> Result<OwnedFd, Error> {
    let expected = SocketAddr::from((Ipv4Addr::LOCALHOST, egress::PORT));
    let is_listening = || -> rustix::io::Result<bool> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let own: Option<SocketAddr> = rustix::net::getsockname(&socket)?.try_into().ok();
        Ok(own == Some(expected)
            && sockopt::socket_type(&socket)? == SocketType::STREAM
            && sockopt::socket_acceptconn(&socket)?)
    };
    match is_listening().map_err(talk)? {
        true => Ok(socket),
        false => Err(Error::NoProxySocket),
    }
}

#[cfg(test)]
#[path = "proxy_socket_tests.rs"]
mod tests;
