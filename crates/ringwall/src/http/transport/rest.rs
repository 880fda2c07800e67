//! Reads and discards the rest of a request body before an error response is sent.
//!
//! If the server closes the connection while the client still sends, the client sees a reset and
//! may never read the response, for example that its file is too large. At most 128 MiB and 5 s are
//! spent. The response is sent at once if `Content-Length` exceeds that, or if the client waits for
//! `100 Continue` and the handler has not begun to read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use hyper::body::{Frame, SizeHint};

const MAX_COUNT: u64 = 128 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The part of a body that the handler has not read.
pub(crate) struct Rest {
    body: Arc<Mutex<Watched>>,
    begins: Begins,
}

/// When the client sends its body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    AtOnce,
    /// When the server begins to read (`Expect: 100-continue`).
    WhenWanted,
}

struct Watched {
    body: Body,
    is_begun: bool,
}

/// Splits a body into one for the handler and access to the part that it leaves unread, which is
/// `None` if the body is empty.
pub(crate) fn share(headers: &HeaderMap, body: Body) -> (Body, Option<Rest>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let begins = if headers.contains_key(header::EXPECT) { Begins::WhenWanted } else { Begins::AtOnce };
    let body = Arc::new(Mutex::new(Watched { body, is_begun: false }));
    (Body::new(Shared(Arc::clone(&body))), Some(Rest { body, begins }))
}

impl Rest {
    pub(crate) async fn throw_away(self) {
        let mut body = Shared(self.body);
        let is_unwanted = self.begins == Begins::WhenWanted && !body.lock().is_begun;
        // More than one reference: a task of the handler still reads the body.
        if is_unwanted || Arc::strong_count(&body.0) > 1 || body.size_hint().lower() > MAX_COUNT {
            return;
        }
        let mut left = MAX_COUNT;
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

struct Shared(Arc<Mutex<Watched>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut watched = self.lock();
        watched.is_begun = true;
        Pin::new(&mut watched.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A body of 100 pieces, and the number of those that were read.
    fn counted() -> (Body, Arc<AtomicU64>) {
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
        let (body, read) = counted();
        let (mut body, rest) = share(&HeaderMap::new(), body);
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap().unwrap();
        drop(body);
        rest.unwrap().throw_away().await;
        assert_eq!(read.load(Ordering::Relaxed), 100);
        assert!(share(&HeaderMap::new(), Body::empty()).1.is_none());
    }

    #[tokio::test]
    async fn rest_is_not_read_before_100_continue_or_beside_another_reader() {
        let waiting = HeaderMap::from_iter([(header::EXPECT, "100-continue".parse().unwrap())]);
        let (body, read) = counted();
        let (body, rest) = share(&waiting, body);
        drop(body);
        rest.unwrap().throw_away().await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
        let (body, read) = counted();
        let (_kept, rest) = share(&HeaderMap::new(), body);
        rest.unwrap().throw_away().await;
        assert_eq!(read.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn rest_that_never_arrives_is_given_up_after_the_timeout() {
        let (body, rest) =
            share(&HeaderMap::new(), Body::from_stream(futures::stream::pending::<Result<Bytes, axum::Error>>()));
        drop(body);
        let begun = tokio::time::Instant::now();
        rest.unwrap().throw_away().await;
        assert_eq!(begun.elapsed(), TIMEOUT);
    }
}
