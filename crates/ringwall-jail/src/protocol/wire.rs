//! Messages between executor and jail: one socket, one message at a time, descriptors alongside.
//!
//! The plan travels as a sealed memory file, so that its size is not bounded by a socket's buffer; everything
//! else fits in one packet. Both sides are of the same build, so the encoding has no versions.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No report is longer: a few protections with their reasons, or a path.
const MAX_MESSAGE_LEN: usize = 8 * 1024;
/// As many as the kernel passes in one message.
const MAX_DESCRIPTORS: usize = 253;

/// The two ends of a socket that keeps messages apart.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one message, and descriptors with it.
pub fn send<T: Serialize>(socket: impl AsFd, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(|_| Errno::INVAL)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Receives one message; `None` when the other side is gone.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_MESSAGE_LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let buffer = &mut [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(&socket, buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    // A message or a descriptor that did not fit would be acted on as if it had never been there.
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(Errno::MSGSIZE);
    }
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let message = postcard::from_bytes(&bytes[..received.bytes]).map_err(|_| Errno::BADMSG)?;
    Ok(Some((message, descriptors)))
}

/// How long something is as a message.
pub fn length<T: Serialize>(message: &T) -> Result<usize> {
    postcard::experimental::serialized_size(message).map_err(|_| Errno::INVAL)
}

/// Writes something long into a memory file that nobody can change any more.
pub fn pack<T: Serialize>(content: &T) -> Result<OwnedFd> {
    let bytes = postcard::to_stdvec(content).map_err(|_| Errno::INVAL)?;
    let file = rustix::fs::memfd_create(c"ringwall-plan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut written = 0;
    while written < bytes.len() {
        written += rustix::io::pwrite(&file, &bytes[written..], written as u64)?;
    }
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// Reads it back.
pub fn unpack<T: DeserializeOwned>(file: impl AsFd) -> Result<T> {
    let length = rustix::fs::fstat(&file)?.st_size;
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| Errno::INVAL)?];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[read..], read as u64)? {
            0 => return Err(Errno::BADMSG),
            count => read += count,
        }
    }
    match postcard::take_from_bytes(&bytes) {
        Ok((content, [])) => Ok(content),
        _ => Err(Errno::BADMSG),
    }
}
