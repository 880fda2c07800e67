//! Reads the agent's messages from its standard output.
//!
//! Frames are bounded, and the register checks each message; the first invalid one ends the box.
//! The agent's standard error is read and discarded.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_jail::agent::frame::{FrameReader, MAX_FROM_AGENT, read};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use super::register::{Death, Shared};
use crate::counters::register;

/// Reads until the agent ends or breaks the protocol.
pub(crate) async fn listen(pipe: OwnedFd, shared: Arc<Shared>) {
    let why = match hear(pipe, &shared).await {
        Heard::End => "its agent has ended",
        Heard::FrameError => "its agent broke the protocol",
    };
    shared.end_for(Death::Itself(why.to_owned()));
}

enum Heard {
    End,
    FrameError,
}

async fn hear(pipe: OwnedFd, shared: &Shared) -> Heard {
    let Ok(mut pipe) = register(pipe, Receiver::from_owned_fd).await else { return Heard::End };
    let mut frames = FrameReader::new(MAX_FROM_AGENT);
    loop {
        match pipe.read(frames.space()).await {
            Ok(0) | Err(_) => return Heard::End,
            Ok(count) => frames.filled(count),
        }
        loop {
            match frames.take() {
                Ok(Some(body)) => {
                    if read(body).and_then(|said| shared.hear(&said)).is_err() {
                        return Heard::FrameError;
                    }
                }
                Ok(None) => break,
                Err(_) => return Heard::FrameError,
            }
        }
    }
}

pub(crate) async fn ignore(pipe: OwnedFd) {
    let Ok(mut pipe) = register(pipe, Receiver::from_owned_fd).await else { return };
    let mut buffer = [0; 4096];
    while let Ok(1..) = pipe.read(&mut buffer).await {}
}
