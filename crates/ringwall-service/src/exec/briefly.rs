//! Short work that blocks, in the thread that comes to it.
//!
//! To have a thread of the event loop relieved (`block_in_place`) costs several wake-ups, and the few dozen calls by which the
//! files of an exec are made, or put away, are mostly over before the relief is there. So it is left out, but for one: the last
//! thread that is free is relieved as ever, so that a disk that stands still leaves a server that answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// How many threads do such work now.
static ENGAGED: AtomicUsize = AtomicUsize::new(0);

/// Not to be called by what it calls: that would count twice.
pub(crate) fn briefly<T>(work: impl FnOnce() -> T) -> T {
    let engagement = Engagement::begin();
    let threads = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_workers());
    if engagement.others + 1 < threads { work() } else { block_in_place(work) }
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
