//! Processes of this program in its jail roles: the executable they start from, the spawner of all boxes, and their messages.

pub(crate) mod base_rootfs;
pub(crate) mod program;
pub(crate) mod spawner;

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ringwall_jail::wire;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::error::Error;

/// The next message of a jail process; `None` when it is gone. The socket keeps message boundaries, so tokio's stream type only
/// waits until it is readable.
pub(crate) async fn receive<T: DeserializeOwned>(control: &UnixStream) -> Result<Option<(T, Vec<OwnedFd>)>, Error> {
    loop {
        control.readable().await.map_err(Error::Talk)?;
        match control.try_io(Interest::READABLE, || Ok(wire::receive(control)?)) {
            Ok(message) => return Ok(message),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Reported once, if the process ended without reading everything; its last messages come after it.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => return Err(Error::Talk(error)),
        }
    }
}

/// The first program of this name in PATH.
pub(crate) fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        // An ordinary user's PATH often omits these.
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok())
}
