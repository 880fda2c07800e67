//! Responses that are written while they are sent: a directory as a zip, or a large text in its
//! JSON envelope.
//!
//! A blocking thread writes the body, at most `MAX_CHUNKS_AHEAD` chunks ahead of the client. When
//! the client disconnects, the next write fails. When writing fails, the connection is closed in
//! the middle of the chunked body, so the client does not take the part for the whole.

use std::io::{self, Write};

use axum::body::{Body, Bytes};
use axum::http::{Method, header};
use axum::response::Response;
use futures::stream;
use ringwall_service::Archive;
use tokio::sync::mpsc;

use super::caller_limits::CallerPermit;
use super::file_response::set;
use super::guarded_body::guard_body;

const CHUNK_BYTES: usize = 64 << 10;
const MAX_CHUNKS_AHEAD: usize = 4;

/// Sends a directory as a zip. `permit` counts the download until its body is dropped.
pub(crate) fn send_archive(archive: Archive, method: &Method, permit: CallerPermit) -> Response {
    // Only a suggestion for a browser; characters that could end the quoted string are left out.
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    let name: String = archive.name().chars().filter(is_plain).collect();
    let body =
        if method == Method::GET { Body::from_stream(chunks(move |to| archive.write(to))) } else { Body::empty() };
    let mut response = Response::new(body);
    set(&mut response, header::CONTENT_TYPE, "application/zip");
    set(&mut response, header::CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}.zip\""));
    guard_body(response, permit)
}

/// The output of `write`, which runs on a blocking thread, as a stream.
pub(crate) fn chunks(
    write: impl FnOnce(&mut ChunkWriter) -> io::Result<()> + Send + 'static,
) -> impl stream::Stream<Item = io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(MAX_CHUNKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut writer = ChunkWriter { sender, chunk: Vec::with_capacity(CHUNK_BYTES), state: State::Open };
        let written = write(&mut writer).and_then(|()| writer.flush());
        if let Err(error) = written {
            // Fails if the client has disconnected.
            let _ = writer.sender.blocking_send(Err(error));
        }
    });
    stream::unfold(receiver, async |mut receiver| receiver.recv().await.map(|chunk| (chunk, receiver)))
}

/// The writer of a streamed body.
pub(crate) struct ChunkWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    chunk: Vec<u8>,
    state: State,
}

enum State {
    Open,
    /// The client is gone and `write` got its error. Later writes are discarded without an error: a
    /// `ZipWriter` writes the end of its archive when it is dropped.
    Closed,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        match self.state {
            State::Closed => Ok(()),
            State::Open if chunk.is_empty() => Ok(()),
            State::Open => self.sender.blocking_send(Ok(chunk.into())).map_err(|_| {
                self.state = State::Closed;
                io::ErrorKind::BrokenPipe.into()
            }),
        }
    }
}
