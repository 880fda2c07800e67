//! The connection to the agent of a session box.
//!
//! Three tasks serve it: one writes to the agent (`writer`), one reads from it, and one waits for the
//! end of the box and publishes it. Frames are bounded, and `state` checks each message; the first
//! invalid one kills the box. The agent's standard error is read and discarded.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringwall_jail::agent::frame::{Enabled, FrameError, FrameReader, MAX_FROM_AGENT, read};
use ringwall_jail::report::{Protection, ProtectionName};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};

use super::state::{BoxState, Death, Shared};
use super::writer::AgentWriter;
use crate::counters::register;
use crate::error::Error;
use crate::running::{Ending, Outcome, RunningBox};

/// Time limit for the agent's first message and for starting a command.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the tasks. If this fails, the box is killed.
pub(super) async fn connect(mut running: RunningBox) -> Result<Arc<Shared>, Error> {
    let pipes = running.take_streams().into_pipes();
    let [stdin, stdout, stderr] = pipes.ok_or(Error::JailDied)?;
    let writer = AgentWriter::open(register(stdin, Sender::from_owned_fd).await.map_err(Error::Talk)?);
    let shared = Arc::new(Shared::new(running.control(), writer));
    tokio::spawn(listen(stdout, Arc::clone(&shared)));
    tokio::spawn(discard(stderr));
    tokio::spawn(follow(running, Arc::clone(&shared)));
    Ok(shared)
}

/// Waits for the agent's first message, which says if it isolates the processes from each other.
pub(super) async fn ready(shared: &Shared) -> Result<Protection, Error> {
    let mut state = shared.state.subscribe();
    match tokio::time::timeout(TIMEOUT, state.wait_for(|state| *state != BoxState::Starting)).await {
        Ok(Ok(state)) => {
            if let BoxState::Dead(death) = &*state {
                return Err(death.to_error());
            }
        }
        Ok(Err(_)) | Err(_) => return Err(Error::NoAnswer { from: "the agent in the box", timeout: TIMEOUT }),
    }
    Ok(match shared.isolated.get() {
        Some(Enabled::Yes) => Protection::enforced(ProtectionName::CommandsApart),
        Some(Enabled::No) | None => {
            Protection::not_available(ProtectionName::CommandsApart, "there is no Landlock in this box")
        }
    })
}

/// Handles the agent's messages until it ends or breaks the protocol.
async fn listen(pipe: OwnedFd, shared: Arc<Shared>) {
    shared.kill_for(match handle_messages(pipe, &shared).await {
        Ok(()) => "its agent has ended",
        Err(FrameError) => "its agent broke the protocol",
    });
}

async fn handle_messages(pipe: OwnedFd, shared: &Shared) -> Result<(), FrameError> {
    let Ok(mut pipe) = register(pipe, Receiver::from_owned_fd).await else { return Ok(()) };
    let mut frames = FrameReader::new(MAX_FROM_AGENT);
    loop {
        match pipe.read(frames.space()).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => frames.filled(count),
        }
        while let Some(body) = frames.take()? {
            shared.handle(&read(body)?)?;
        }
    }
}

async fn discard(pipe: OwnedFd) {
    let Ok(mut pipe) = register(pipe, Receiver::from_owned_fd).await else { return };
    let mut buffer = [0; 4096];
    while let Ok(1..) = pipe.read(&mut buffer).await {}
}

/// Waits for the end of the box and publishes the reason.
async fn follow(running: RunningBox, shared: Arc<Shared>) {
    let outcome = running.wait().await;
    let death = match (shared.kill_reason().cloned(), outcome) {
        (Some(Death::Stopped), _) => Death::Stopped,
        // An OOM kill can also be the cause of an agent that seemed to end by itself.
        (None | Some(Death::Failed(_)), Ok(Outcome { out_of_memory: true, .. })) => Death::OutOfMemory,
        (_, Ok(Outcome { ending: Ending::OverCounters, .. })) => {
            Death::Failed("it held more epoll watches or unreceived descriptors than one box may".to_owned())
        }
        (Some(death), Ok(_)) => death,
        (None, Ok(_)) => Death::Failed("its agent has ended".to_owned()),
        (_, Err(error)) => Death::Failed(error.to_string()),
    };
    shared.mark_dead(death);
}
