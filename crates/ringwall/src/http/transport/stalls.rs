//! Reports to the connection limit when a request waits for its client: for bytes of the request
//! body ([`ClientBody`]), or for the client to read the response ([`ClientStream`]). Such a
//! connection may be closed for a new one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connection_limit::{ConnectionPermit, Stall};

/// One kind of wait of one connection. Locks the connection limit only when the wait begins or
/// ends.
#[derive(Debug)]
struct Wait {
    permit: Arc<ConnectionPermit>,
    stall: Stall,
    is_waiting: bool,
}

impl Wait {
    fn new(permit: Arc<ConnectionPermit>, stall: Stall) -> Self {
        Self { permit, stall, is_waiting: false }
    }

    /// Records whether a poll was ready. Fails if the connection lost its slot while it waited.
    fn observe<T>(&mut self, polled: &Poll<T>) -> io::Result<()> {
        match polled {
            Poll::Pending if !self.is_waiting => {
                self.is_waiting = true;
                self.permit.stall(self.stall);
            }
            Poll::Ready(_) if std::mem::take(&mut self.is_waiting) && !self.permit.resume(self.stall) => {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Poll::Pending | Poll::Ready(_) => {}
        }
        Ok(())
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.is_waiting {
            self.permit.resume(self.stall);
        }
    }
}

/// A request body. It fails once its connection has lost its slot, so that no handler acts on a
/// request whose connection is being closed.
#[derive(Debug)]
pub(crate) struct ClientBody {
    body: Incoming,
    wait: Wait,
}

impl ClientBody {
    pub(crate) fn new(body: Incoming, permit: Arc<ConnectionPermit>) -> Self {
        Self { body, wait: Wait::new(permit, Stall::Body) }
    }
}

impl HttpBody for ClientBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match self.wait.observe(&polled) {
            Ok(()) => polled.map_err(axum::Error::new),
            Err(lost) => Poll::Ready(Some(Err(axum::Error::new(lost)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A client's connection. A pending write means that the client does not read.
#[derive(Debug)]
pub(crate) struct ClientStream {
    stream: TcpStream,
    wait: Wait,
}

impl ClientStream {
    pub(crate) fn new(stream: TcpStream, permit: Arc<ConnectionPermit>) -> Self {
        Self { stream, wait: Wait::new(permit, Stall::Write) }
    }

    fn observe(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match self.wait.observe(&polled) {
            Ok(()) => polled,
            Err(lost) => Poll::Ready(Err(lost)),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.observe(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.observe(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
