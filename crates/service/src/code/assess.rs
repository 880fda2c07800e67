//! Assessing a text without keeping anybody else waiting: a small one at once, larger ones a few at a time on threads of their
//! own.
//!
//! A place is held by the thread and not by whoever asks: who goes away in the middle does not make room for more.

use policy::{Assessment, Content};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::error::Error;
use crate::service::Service;

/// So much is judged in less time than it takes to tell another thread of it.
const TINY: usize = 512;
/// So much is judged within a millisecond or so, and on any stack.
const SMALL: usize = 8 * 1024;
/// So much keeps a processor busy for a moment, whatever it is. What is larger may take seconds, and others do not wait for it.
const MIDDLE: usize = 64 * 1024;
static PLACES: Semaphore = Semaphore::const_new(4);
static PLACES_FOR_LARGE: Semaphore = Semaphore::const_new(2);

impl Service {
    /// What a text could do. It is advice, and nothing is run or kept.
    pub async fn assess(&self, content: Content, text: String) -> Result<Assessment, Error> {
        if text.len() <= TINY {
            return Ok(policy::assess(content, &text));
        }
        if text.len() <= SMALL {
            return Self::blocking(|| Ok(policy::assess(content, &text))).await;
        }
        assess_large(content, text).await
    }
}

async fn assess_large(content: Content, text: String) -> Result<Assessment, Error> {
    let places = if text.len() <= MIDDLE { &PLACES } else { &PLACES_FOR_LARGE };
    let place = places.acquire().await.map_err(|error| Error::runtime("judge a text", &error))?;
    let stack = policy::stack_needed(text.len());
    on_a_thread(place, stack, move || policy::assess(content, &text)).await
}

/// Does something to its end, whoever still waits for it.
async fn on_a_thread<T: Send + 'static>(
    place: SemaphorePermit<'static>,
    stack: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (tell, told) = oneshot::channel();
    let run = move || {
        let done = work();
        drop(place);
        // Whoever asked may be gone.
        let _ = tell.send(done);
    };
    let thread = std::thread::Builder::new().name("assess".into()).stack_size(stack).spawn(run);
    thread.map_err(|error| Error::runtime("start a thread that judges a text", &error))?;
    told.await.map_err(|error| Error::runtime("judge a text", &error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn brackets_within_brackets_do_not_take_the_stack() {
        // The parser calls itself once for each; on an ordinary stack that ends the whole server.
        for deep in ["{a:", "label:{"] {
            let text = deep.repeat(192 * 1024 / deep.len());
            let assessment = assess_large(Content::Javascript, text).await.expect("an assessment");
            assert!(assessment.requires_isolation(), "{deep}");
        }
    }

    #[tokio::test]
    async fn who_goes_away_makes_no_room() {
        static PLACE: Semaphore = Semaphore::const_new(1);
        let place = PLACE.acquire().await.expect("a place");
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let work = move || {
            begin.send(()).expect("a test that waits");
            ended.recv().expect("an end");
        };
        let asking = tokio::spawn(on_a_thread(place, 64 * 1024, work));
        let begun = tokio::task::spawn_blocking(move || begun.recv_timeout(Duration::from_secs(60)));
        begun.await.expect("a thread").expect("a beginning");
        asking.abort();
        assert!(asking.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(PLACE.available_permits(), 0, "the work goes on");
        end.send(()).expect("a thread that waits");
        let _ = tokio::time::timeout(Duration::from_secs(60), PLACE.acquire()).await.expect("a place in the end");
    }
}
