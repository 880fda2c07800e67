//! Blocking work in the asynchronous runtime.
//!
//! `block_in_place` hands the thread's other tasks to another thread, which costs several wake-ups. [`briefly`] leaves that out
//! for the few dozen calls by which the files of an exec are made or stored, unless all other threads block as well: then the
//! last one hands its tasks over, so that a disk that does not answer leaves a server that does.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::error::Error;

/// How many threads do such work now.
static ENGAGED: AtomicUsize = AtomicUsize::new(0);

/// Not to be called by what it calls: that would count twice.
pub(crate) fn briefly<T>(work: impl FnOnce() -> T) -> T {
    let engagement = Engagement::begin();
    let threads = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_workers());
    if engagement.others + 1 < threads { work() } else { block_in_place(work) }
}

/// Runs `work` in this thread and moves the thread's other tasks to another one. Waiting for a thread of the blocking pool instead
/// takes up to a millisecond while the kernel takes a box apart on the processor that it would get.
pub(crate) async fn in_place<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    block_in_place(work)
}

/// Runs `work` to its end on a blocking thread, also if the caller stops waiting.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::runtime("finish what was begun", &error)),
    }
}

struct Engagement {
    /// Who was engaged before.
    others: usize,
}

impl Engagement {
    fn begin() -> Self {
        Self { others: ENGAGED.fetch_add(1, Ordering::Relaxed) }
    }
}

/// Also by a panic.
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

    /// As many do not come back as there are threads, and the loop goes on.
    #[test]
    fn a_loop_whose_threads_are_all_engaged_goes_on() {
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
