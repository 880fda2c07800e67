//! Encoding of messages between executor and jail: one SEQPACKET message each, with descriptors.
//!
//! A plan that is too long for a message travels as a sealed memfd. Both sides come from the same
//! build, so the encoding has no version.

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

/// Longer than any report (protections with their reasons, or a path).
const MAX_MESSAGE_LEN: usize = 8 * 1024;
/// SCM_MAX_FD: the kernel passes at most this many per message.
const MAX_DESCRIPTORS: usize = 253;

/// A pair of connected SEQPACKET sockets.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one message with descriptors.
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

/// Receives one message; `None` when the peer has closed its end.
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
    // A truncated message or lost descriptor must not be mistaken for a complete message.
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

/// Encoded size in bytes.
pub fn length<T: Serialize>(message: &T) -> Result<usize> {
    postcard::experimental::serialized_size(message).map_err(|_| Errno::INVAL)
}

/// Encodes into a sealed memfd, which no process can modify.
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

/// Decodes the content of such a file.
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
