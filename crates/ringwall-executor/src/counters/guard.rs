//! A thread that ends rootless boxes which hold too many of the user's epoll watches or unreceived
//! descriptors, because the server needs them too.
//!
//! Ten times a second it adds one epoll watch of its own and removes it. While that succeeds, it
//! counts once a second what each box holds and ends those above their cap. If the kernel refuses
//! (ENOSPC), processes of this user hold all watches: the box that holds the most is ended, then the
//! next, until the watch can be added again. The thread uses no async runtime, which could not
//! register anything at that moment.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use super::Caps;
use super::count::{Held, Scan, Tables, held};
use crate::pidfd::{has_ended, process_id};

const INTERVAL: Duration = Duration::from_millis(100);
const INTERVALS_PER_COUNT: u32 = 10;
/// The kernel frees the watches of a killed box within this time; otherwise the next box is ended.
const TEARDOWN: Duration = Duration::from_secs(3);
/// Pause when no box holds enough to be ended: counting all boxes ten times a second would take CPU
/// without effect.
const FUTILE: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// When the user has no watch left, a box that holds less than its cap divided by this is not ended:
/// processes outside of boxes hold them.
const SMALL_PART: u64 = 16;

/// The boxes of one executor.
#[derive(Debug)]
pub(crate) struct Guard {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    caps: Caps,
    boxes: Mutex<Vec<Weak<Watched>>>,
    thread: Mutex<Option<Thread>>,
    is_over: AtomicBool,
}

/// One box, watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    init: Arc<OnceLock<OwnedFd>>,
    max_passed: u64,
    /// The unfinished count of the last second.
    scan: Mutex<Scan>,
    was_ended: AtomicBool,
}

impl Guard {
    /// The thread starts with the first box.
    pub(crate) fn new(caps: Caps) -> Self {
        let (boxes, thread) = (Mutex::default(), Mutex::default());
        Guard { shared: Arc::new(Shared { caps, boxes, thread, is_over: AtomicBool::new(false) }) }
    }

    /// Watches the box of this PID 1, which may not have been reported yet. It may hold `max_passed`
    /// unreceived descriptors.
    pub(crate) fn watch(&self, init: Arc<OnceLock<OwnedFd>>, max_passed: u64) -> Arc<Watched> {
        let was_ended = AtomicBool::new(false);
        let watched = Arc::new(Watched { init, max_passed, scan: Mutex::default(), was_ended });
        self.shared.lock().push(Arc::downgrade(&watched));
        let mut thread = self.shared.thread();
        match &*thread {
            Some(thread) => thread.unpark(),
            // If the thread cannot be started, the next box tries again.
            None => *thread = self.start().ok(),
        }
        drop(thread);
        watched
    }

    fn start(&self) -> std::io::Result<Thread> {
        let (probe, shared) = (Probe::new()?, Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("counters".to_owned());
        Ok(thread.spawn(move || shared.keep_watch(&probe))?.thread().clone())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = &*self.shared.thread() {
            thread.unpark();
        }
    }
}

impl Watched {
    /// True if the guard ended this box.
    pub(crate) fn was_ended(&self) -> bool {
        self.was_ended.load(Ordering::Relaxed)
    }

    /// Uses the pidfd of PID 1, so a reused PID is never signalled.
    fn end(&self) {
        if let Some(init) = self.init.get() {
            self.was_ended.store(true, Ordering::Relaxed);
            let _ = pidfd_send_signal(init, Signal::KILL);
        }
    }

    fn is_gone(&self) -> bool {
        self.init.get().is_some_and(has_ended)
    }

    fn held(&self, tables: Tables, enough: u64, scan: &mut Scan) -> Held {
        match self.init.get().and_then(process_id) {
            Some(init) if !self.is_gone() => held(init, tables, enough, scan),
            _ => Held::default(),
        }
    }

    /// True if the counts, as far as one call of [`held`] gets, are above the caps.
    fn is_over(&self, caps: Caps) -> bool {
        let mut scan = self.scan.lock();
        let held = self.held(Tables::OfProcesses, caps.watches, &mut scan);
        held.watches > caps.watches || held.passed > self.max_passed
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Watched>>> {
        self.boxes.lock()
    }

    fn thread(&self) -> MutexGuard<'_, Option<Thread>> {
        self.thread.lock()
    }

    fn boxes(&self) -> Vec<Arc<Watched>> {
        let mut boxes = self.lock();
        boxes.retain(|watched| watched.strong_count() > 0);
        boxes.iter().filter_map(Weak::upgrade).collect()
    }

    fn keep_watch(&self, probe: &Probe) {
        let mut intervals: u32 = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if self.lock().is_empty() {
                std::thread::park();
            } else {
                std::thread::park_timeout(INTERVAL);
            }
            let boxes = self.boxes();
            intervals = intervals.wrapping_add(1);
            if probe.is_refused() {
                self.make_room(probe, boxes);
                if probe.is_refused() {
                    std::thread::park_timeout(FUTILE);
                }
            } else if intervals.is_multiple_of(INTERVALS_PER_COUNT) {
                boxes.iter().filter(|watched| watched.is_over(self.caps)).for_each(|watched| watched.end());
            }
        }
    }

    /// Ends one box after another until the probe succeeds or the remaining boxes hold too little.
    fn make_room(&self, probe: &Probe, mut boxes: Vec<Arc<Watched>>) {
        let enough = self.caps.user_watches / 4;
        let held = |watched: &Arc<Watched>| watched.held(Tables::OfThreads, enough, &mut Scan::default());
        let mut held: Vec<Held> = boxes.iter().map(held).collect();
        while let Some(index) = largest(&held, self.caps) {
            let ended = boxes.swap_remove(index);
            held.swap_remove(index);
            ended.end();
            let deadline = Instant::now() + TEARDOWN;
            while probe.is_refused() {
                if ended.is_gone() || Instant::now() > deadline {
                    break;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            if !probe.is_refused() {
                return;
            }
        }
    }
}

/// The box to end when all watches of the user are taken. Watches that were not counted may be in
/// epoll instances that were sent and not received, so they are added to the score of each box with
/// unreceived descriptors or with unreadable tables.
fn largest(boxes: &[Held], caps: Caps) -> Option<usize> {
    let seen: u64 = boxes.iter().map(|held| held.watches).sum();
    let unseen = caps.user_watches.saturating_sub(seen);
    let score = |held: &Held| held.watches + if held.passed > 0 || held.is_incomplete { unseen } else { 0 };
    let scores = boxes.iter().enumerate().map(|(index, held)| (score(held), held.passed, index));
    let (score, _, index) = scores.max()?;
    (score >= caps.watches / SMALL_PART).then_some(index)
}

/// An epoll instance and an event descriptor to watch.
struct Probe {
    epoll: OwnedFd,
    event: OwnedFd,
}

impl Probe {
    fn new() -> rustix::io::Result<Self> {
        Ok(Probe { epoll: epoll::create(CreateFlags::CLOEXEC)?, event: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// True if the kernel refuses this user one more watch.
    fn is_refused(&self) -> bool {
        match epoll::add(&self.epoll, &self.event, EventData::new_u64(0), EventFlags::empty()) {
            Err(Errno::NOSPC) => true,
            Ok(()) => epoll::delete(&self.epoll, &self.event).is_err(),
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps { user_watches: 1_000_000, watches: 62_500, open_files: 4096 };

    fn seen(watches: u64) -> Held {
        Held { watches, ..Held::default() }
    }

    #[test]
    fn box_with_most_watches_is_ended() {
        assert_eq!(largest(&[seen(50), seen(900_000), seen(90_000)], CAPS), Some(1));
    }

    #[test]
    fn box_with_unreceived_descriptors_answers_for_unseen_watches() {
        let hiding = Held { passed: 3, ..seen(10) };
        assert_eq!(largest(&[seen(20_000), hiding], CAPS), Some(1));
        // Nothing is hidden when the boxes account for all watches.
        assert_eq!(largest(&[seen(999_000), hiding], CAPS), Some(0));
    }

    #[test]
    fn box_that_cannot_be_read_answers_for_unseen_watches() {
        let closed = Held { is_incomplete: true, ..Held::default() };
        assert_eq!(largest(&[closed, seen(20_000)], CAPS), Some(0));
    }

    #[test]
    fn boxes_with_few_watches_stay_when_others_hold_them() {
        assert_eq!(largest(&[seen(50), seen(3_000)], CAPS), None);
        assert_eq!(largest(&[], CAPS), None);
    }
}
