//! The server's ends of a command's standard streams.

use std::os::fd::OwnedFd;

use ringwall_jail::plan::Owner;
use rustix::fs::{Gid, Uid};
use rustix::pipe::{PipeFlags, pipe_with};

/// The outer ends of the command's standard streams.
#[derive(Debug)]
pub enum Streams {
    Pipes { stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd },
    Terminal(OwnedFd),
}

/// Makes three pipes and returns our ends and the command's. A box never gets a descriptor of the
/// host's own streams. The pipes belong to the box's user, because programs reopen their streams by
/// name (`> /dev/stderr`).
pub(crate) fn pipes(owner: Owner) -> rustix::io::Result<(Streams, Vec<OwnedFd>)> {
    let make = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fchown(&read, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
        Ok((read, write))
    };
    let ((stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr)) = (make()?, make()?, make()?);
    let ours = Streams::Pipes { stdin: our_stdin, stdout: our_stdout, stderr: our_stderr };
    Ok((ours, vec![stdin, stdout, stderr]))
}
