//! Reads and discards the rest of a request body before an error response is sent.
//!
//! If the server closes the connection while the client still sends, the client sees a reset and
//! may never read the response, for example that its file is too large. At most 128 MiB and 5 s are
//! spent. The response is sent at once if `Content-Length` exceeds that, or if the client waits for
//! `100 Continue` and the handler has not begun to read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

const MAX_DRAINED_BYTES: u64 = 128 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The part of a body that the handler has not read.
pub(crate) struct UnreadBody {
    body: Arc<Mutex<TrackedBody>>,
    sends_body: SendsBody,
}

/// When the client sends its body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendsBody {
    AtOnce,
    /// When the server begins to read (`Expect: 100-continue`).
    AfterContinue,
}

struct TrackedBody {
    body: Body,
    was_polled: bool,
}

/// Splits a body into one for the handler and access to the part that it leaves unread, which is
/// `None` if the body is empty.
pub(crate) fn split(headers: &HeaderMap, body: Body) -> (Body, Option<UnreadBody>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let sends_body = if headers.contains_key(header::EXPECT) { SendsBody::AfterContinue } else { SendsBody::AtOnce };
    let body = Arc::new(Mutex::new(TrackedBody { body, was_polled: false }));
    (Body::new(Shared(Arc::clone(&body))), Some(UnreadBody { body, sends_body }))
}

impl UnreadBody {
    pub(crate) async fn drain(self) {
        let mut body = Shared(self.body);
        let was_never_requested = self.sends_body == SendsBody::AfterContinue && !body.0.lock().was_polled;
        // More than one reference: a task of the handler still reads the body.
        if was_never_requested || Arc::strong_count(&body.0) > 1 || body.size_hint().lower() > MAX_DRAINED_BYTES {
            return;
        }
        let mut left = MAX_DRAINED_BYTES;
        let reading = async {
            while let Some(Ok(frame)) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                let count = frame.data_ref().map_or(0, |data| data.len() as u64);
                left = left.saturating_sub(count);
                if left == 0 {
                    return;
                }
            }
        };
        // After the timeout the connection is closed with unread data.
        let _ = tokio::time::timeout(TIMEOUT, reading).await;
    }
}

struct Shared(Arc<Mutex<TrackedBody>>);

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut tracked = self.0.lock();
        tracked.was_polled = true;
        Pin::new(&mut tracked.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A body of 100 pieces, and the number of those that were read.
    fn counting_body() -> (Body, Arc<AtomicU64>) {
        let read = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&read);
        let pieces = (0..100).map(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>("x")
        });
        (Body::from_stream(futures::stream::iter(pieces)), read)
    }

    #[tokio::test]
    async fn unread_rest_is_read() {
        let (body, read) = counting_body();
        let (mut body, unread) = split(&HeaderMap::new(), body);
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap().unwrap();
        drop(body);
        unread.unwrap().drain().await;
        assert_eq!(read.load(Ordering::Relaxed), 100);
        assert!(split(&HeaderMap::new(), Body::empty()).1.is_none());
    }

    #[tokio::test]
    async fn rest_is_not_read_before_100_continue_or_beside_another_reader() {
        let waiting = HeaderMap::from_iter([(header::EXPECT, "100-continue".parse().unwrap())]);
        let (body, read) = counting_body();
        let (body, unread) = split(&waiting, body);
        drop(body);
        unread.unwrap().drain().await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
        let (body, read) = counting_body();
        let (_kept, unread) = split(&HeaderMap::new(), body);
        unread.unwrap().drain().await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn rest_that_never_arrives_is_given_up_after_the_timeout() {
        let (body, unread) =
            split(&HeaderMap::new(), Body::from_stream(futures::stream::pending::<Result<Bytes, axum::Error>>()));
        drop(body);
        let begun = tokio::time::Instant::now();
        unread.unwrap().drain().await;
        assert_eq!(begun.elapsed(), TIMEOUT);
    }
}
