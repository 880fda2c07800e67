//! Ties a guard to a response body: it is dropped when the last byte was handed to the connection
//! or the client is gone.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Response;
use hyper::body::{Frame, SizeHint};

/// Drops `guard` together with the response's body.
pub(crate) fn guard_body<H: Send + Unpin + 'static>(response: Response<Body>, guard: H) -> Response<Body> {
    response.map(|body| Body::new(GuardedBody { body, _guard: guard }))
}

struct GuardedBody<H> {
    body: Body,
    _guard: H,
}

impl<H: Unpin> HttpBody for GuardedBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
