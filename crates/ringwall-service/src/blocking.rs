//! Runs blocking work in the async runtime.
//!
//! `block_in_place` moves the thread's other tasks to another thread, which costs several wake-ups.
//! [`briefly`] skips that for the few dozen calls that create or store the files of an exec, unless
//! all other worker threads are blocked too: then the last one moves its tasks, so that a hanging
//! disk does not block the whole server.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::error::Error;

/// Number of threads in [`briefly`].
static ENGAGED: AtomicUsize = AtomicUsize::new(0);

/// Runs short blocking work. Must not be nested, because that would count the thread twice.
pub(crate) fn briefly<T>(work: impl FnOnce() -> T) -> T {
    let engagement = Engagement::begin();
    let threads = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_workers());
    if engagement.others + 1 < threads { work() } else { block_in_place(work) }
}

/// Runs `work` in this thread and moves the thread's other tasks to another one. A thread of the
/// blocking pool may start up to a millisecond later, because the kernel is still destroying a box
/// on its processor.
pub(crate) async fn in_place<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    block_in_place(work)
}

/// Runs `work` to its end on a blocking thread, also if the caller stops waiting.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::runtime("finish a blocking operation", &error)),
    }
}

struct Engagement {
    /// Number of threads that were in [`briefly`] before.
    others: usize,
}

impl Engagement {
    fn begin() -> Self {
        Self { others: ENGAGED.fetch_add(1, Ordering::Relaxed) }
    }
}

/// In `drop`, so that a panic decrements the counter too.
impl Drop for Engagement {
    fn drop(&mut self) {
        ENGAGED.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// One more blocking call than threads, and the runtime still makes progress.
    #[test]
    fn runtime_with_all_threads_blocked_makes_progress() {
        for threads in 1..=3 {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
            let (began, begun) = mpsc::channel();
            let leave: Vec<mpsc::Sender<()>> = (0..threads + 1)
                .map(|_| {
                    let (leave, left) = mpsc::channel::<()>();
                    let began = began.clone();
                    runtime.spawn(async move {
                        briefly(|| {
                            began.send(()).unwrap();
                            let _ = left.recv();
                        });
                    });
                    leave
                })
                .collect();
            for _ in &leave {
                begun.recv_timeout(Duration::from_secs(60)).unwrap();
            }
            let (answer, answered) = mpsc::channel();
            runtime.spawn(async move { answer.send(()).unwrap() });
            assert_eq!(answered.recv_timeout(Duration::from_secs(60)), Ok(()), "{threads}");
            drop(leave);
        }
        let panicked = std::panic::catch_unwind(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            runtime.block_on(async { briefly(|| panic!("in the middle")) });
        });
        assert!(panicked.is_err());
    }
}
