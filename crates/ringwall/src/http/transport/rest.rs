//! The rest of a body that nobody wanted: read and thrown away before a refusal goes out.
//!
//! A client that still sends when its connection is closed sees a reset and may never read the answer: it would learn that
//! something broke, and not that its file is too large. What is thrown away is bounded in bytes and in time. Whoever announced
//! more than that is answered at once, and so is whoever waits to be told to send (`Expect: 100-continue`).

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use hyper::body::{Frame, SizeHint};

const MAX_COUNT: u64 = 128 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a handler leaves of a body.
pub(crate) struct Rest {
    body: Arc<Mutex<Watched>>,
    begins: Begins,
}

/// When the client sends its body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    AtOnce,
    /// When somebody begins to read.
    WhenWanted,
}

struct Watched {
    body: Body,
    is_begun: bool,
}

/// The same body for a handler, and a way to what it leaves. One that is empty leaves nothing.
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
        // Somebody who reads on elsewhere is not disturbed.
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
        // Over the time it is closed as it would have been.
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

    /// A body of a hundred pieces, and how many of them were read.
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
    async fn what_a_handler_leaves_is_read() {
        let (body, read) = counted();
        let (mut body, rest) = share(&HeaderMap::new(), body);
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap().unwrap();
        drop(body);
        rest.unwrap().throw_away().await;
        assert_eq!(read.load(Ordering::Relaxed), 100);
        assert!(share(&HeaderMap::new(), Body::empty()).1.is_none());
    }

    #[tokio::test]
    async fn whoever_waits_or_reads_on_is_left_alone() {
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
    async fn a_rest_that_never_comes_is_not_waited_for_long() {
        let (body, rest) =
            share(&HeaderMap::new(), Body::from_stream(futures::stream::pending::<Result<Bytes, axum::Error>>()));
        drop(body);
        let begun = tokio::time::Instant::now();
        rest.unwrap().throw_away().await;
        assert_eq!(begun.elapsed(), TIMEOUT);
    }
}
