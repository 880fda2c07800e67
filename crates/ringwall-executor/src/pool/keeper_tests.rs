//! Tests of the pool with concurrent tasks and boxes that count themselves. The order of tasks is
//! random; the assertions hold for every order.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::*;
use crate::pool::{PoolKind, WarmFigures};

/// The current and the maximum number of boxes.
#[derive(Debug, Default)]
struct Census {
    there: AtomicU32,
    most: AtomicU32,
    made: AtomicU32,
}

#[derive(Debug)]
struct TestBoxes {
    census: Arc<Census>,
    session: u8,
    is_dead: watch::Sender<bool>,
    users: AtomicU32,
    is_counted: AtomicBool,
    /// Set while a test keeps the box from ending.
    is_stuck: watch::Sender<bool>,
}

impl TestBoxes {
    fn new(census: &Arc<Census>, session: u8) -> Self {
        let there = census.there.fetch_add(1, Ordering::SeqCst) + 1;
        census.most.fetch_max(there, Ordering::SeqCst);
        census.made.fetch_add(1, Ordering::SeqCst);
        Self {
            census: census.clone(),
            session,
            is_dead: watch::Sender::new(false),
            users: AtomicU32::new(0),
            is_counted: AtomicBool::new(true),
            is_stuck: watch::Sender::new(false),
        }
    }

    fn end(&self) {
        self.is_dead.send_replace(true);
        if self.is_counted.swap(false, Ordering::SeqCst) {
            self.census.there.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for TestBoxes {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug)]
struct Builder {
    census: Arc<Census>,
    /// Permits to make warm boxes.
    leave: Arc<Semaphore>,
    are_broken: AtomicBool,
}

/// A kind of warm boxes that are made at once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wood(u8);

impl PoolKind for Wood {
    fn pause(&self, _: usize) -> Duration {
        Duration::ZERO
    }
}

impl PoolBoxes for Builder {
    type Key = u8;
    type Kind = Wood;
    type SessionBox = TestBoxes;
    type WarmBox = TestBoxes;

    type Tools = (Arc<Census>, Arc<Semaphore>);

    fn tools(&self) -> Option<Self::Tools> {
        Some((self.census.clone(), self.leave.clone()))
    }

    async fn make_warm_box((census, leave): &Self::Tools, kind: &Wood) -> Option<TestBoxes> {
        leave.acquire().await.ok()?.forget();
        Some(TestBoxes::new(census, kind.0))
    }

    fn is_alive(warm_box: &TestBoxes) -> bool {
        !*warm_box.is_dead.borrow()
    }

    async fn end_warm_box(warm_box: TestBoxes) {
        tokio::task::yield_now().await;
        drop(warm_box);
    }

    async fn died(session_box: &TestBoxes) {
        let _ = session_box.is_dead.subscribe().wait_for(|is_dead| *is_dead).await;
    }

    async fn end(session_box: Arc<TestBoxes>) {
        tokio::task::yield_now().await;
        let _ = session_box.is_stuck.subscribe().wait_for(|is_stuck| !is_stuck).await;
        session_box.end();
    }
}

fn bounds(max_instances: u32, min_instances: u32) -> Bounds {
    Bounds {
        max_instances,
        min_instances,
        idle_timeout: Duration::from_secs(300),
        max_use_count: 100,
        acquire_timeout: Duration::from_secs(5),
    }
}

fn pool(bounds: Bounds, warm_boxes: usize) -> (Arc<Pool<Builder>>, Arc<Census>) {
    let census = Arc::new(Census::default());
    let leave = Arc::new(Semaphore::new(warm_boxes));
    let builder = Builder { census: census.clone(), leave, are_broken: AtomicBool::new(false) };
    (Pool::new(builder, bounds), census)
}

async fn acquire(pool: &Arc<Pool<Builder>>, key: u8, on_busy: OnBusy) -> Result<Lease<Builder>, Refused<&'static str>> {
    let maker = pool.clone();
    let make = async move {
        tokio::task::yield_now().await;
        let is_broken = maker.maker.are_broken.load(Ordering::SeqCst);
        if is_broken { Err("broken") } else { Ok(TestBoxes::new(&maker.maker.census, key)) }
    };
    pool.acquire(&key, on_busy, || make).await
}

/// Lets all other tasks run.
async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn box_is_leased_to_one_task_at_a_time() {
    // A long timeout, so that the result does not depend on the machine's speed.
    let patient = Bounds { acquire_timeout: Duration::from_secs(3600), ..bounds(3, 2) };
    let (pool, census) = pool(patient, usize::MAX >> 4);
    let tasks: Vec<_> = (0..64_u32)
        .map(|number| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for round in 0..20_u32 {
                    let key = u8::try_from((number + round) % 5).expect("small");
                    if (number + round) % 7 == 0 {
                        drop(pool.take_warm_box(&Wood(0)));
                        // Cancels at an arbitrary point.
                        let _ = tokio::time::timeout(
                            Duration::from_micros(u64::from(round)),
                            acquire(&pool, key, OnBusy::Wait),
                        )
                        .await;
                        continue;
                    }
                    let lease = acquire(&pool, key, OnBusy::Wait).await.expect("in time");
                    assert_eq!(lease.session_box().session, key);
                    assert_eq!(lease.session_box().users.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    tokio::task::yield_now().await;
                    lease.session_box().users.fetch_sub(1, Ordering::SeqCst);
                    if round % 9 == 0 {
                        lease.session_box().is_dead.send_replace(true);
                    }
                    let figures = pool.figures();
                    assert_eq!(figures.total, figures.busy + figures.idle + figures.warming);
                    assert!(figures.total <= figures.max, "{figures:?}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no failed assumption");
    }
    pool.stop().await;
    assert_eq!(pool.figures().total, 0);
    assert_eq!(census.there.load(Ordering::SeqCst), 0, "a box is left");
    assert!(matches!(acquire(&pool, 0, OnBusy::Wait).await, Err(Refused::Stopped)));
}

#[tokio::test]
async fn second_lease_waits_or_fails_and_gets_same_box() {
    let (pool, census) = pool(bounds(2, 0), 0);
    let first = acquire(&pool, 7, OnBusy::Fail).await.expect("a box");
    assert!(matches!(acquire(&pool, 7, OnBusy::Fail).await, Err(Refused::Busy)));
    let second = tokio::spawn({
        let pool = pool.clone();
        async move { acquire(&pool, 7, OnBusy::Wait).await.map(|lease| lease.session_box().session) }
    });
    settled().await;
    assert!(!second.is_finished());
    drop(first);
    assert!(matches!(second.await.expect("a task"), Ok(7)));
    assert_eq!(census.made.load(Ordering::SeqCst), 1);
    let figures = pool.figures();
    assert_eq!((figures.hits, figures.misses, figures.idle), (0, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn expired_or_cancelled_request_leaves_nothing() {
    let (pool, census) = pool(bounds(1, 0), 0);
    let held = acquire(&pool, 0, OnBusy::Wait).await.expect("a box");
    assert!(matches!(acquire(&pool, 1, OnBusy::Wait).await, Err(Refused::TimedOut)));
    assert!(matches!(acquire(&pool, 1, OnBusy::Fail).await, Err(Refused::Busy)));
    drop(held);
    // Cancelled while the box is being made: it is made and then ended.
    {
        let making = acquire(&pool, 1, OnBusy::Wait);
        tokio::pin!(making);
        while pool.figures().warming == 0 {
            assert!(poll_once(making.as_mut()).await.is_none());
            tokio::task::yield_now().await;
        }
    }
    settled().await;
    assert_eq!(pool.figures().total, 0);
    assert_eq!(census.there.load(Ordering::SeqCst), 0);
}

/// One poll of a future.
async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn failed_start_frees_slot_for_next_request() {
    let (pool, census) = pool(bounds(1, 0), 0);
    pool.maker.are_broken.store(true, Ordering::SeqCst);
    let tries: Vec<_> = (0..3)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { acquire(&pool, 0, OnBusy::Wait).await.err() })
        })
        .collect();
    for attempt in tries {
        assert!(matches!(attempt.await.expect("a task"), Some(Refused::Failed("broken"))));
    }
    assert_eq!(pool.figures().total, 0);
    pool.maker.are_broken.store(false, Ordering::SeqCst);
    drop(acquire(&pool, 0, OnBusy::Wait).await.expect("a box"));
    assert_eq!(census.made.load(Ordering::SeqCst), 1);
    let panicking = pool.acquire(&1, OnBusy::Wait, || async { panic!("in the making") }).await;
    assert!(matches!(panicking, Err(Refused::<()>::Ended)));
    settled().await;
    assert_eq!(pool.figures().warming, 0, "its place is free");
}

#[tokio::test(start_paused = true)]
async fn idle_box_expires_and_held_box_stays() {
    let (pool, census) = pool(bounds(4, 0), 0);
    let (quiet, held) = (acquire(&pool, 0, OnBusy::Wait).await, acquire(&pool, 1, OnBusy::Wait).await);
    let held = held.expect("a box");
    let hold = held.hold().expect("a hold on a running box");
    drop((quiet, held));
    assert_eq!((pool.figures().idle, pool.figures().busy), (1, 1));
    tokio::time::sleep(Duration::from_secs(301)).await;
    settled().await;
    assert_eq!(census.there.load(Ordering::SeqCst), 1);
    drop(hold);
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(pool.figures().idle, 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    settled().await;
    assert_eq!((pool.figures().total, census.there.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn requested_warm_box_is_made_and_taken_once_unless_dead() {
    let (pool, census) = pool(bounds(4, 2), 3);
    settled().await;
    assert_eq!(pool.figures().total, 0, "no request came");
    assert!(pool.take_warm_box(&Wood(0)).is_none());
    settled().await;
    assert_eq!(
        pool.figures().warm_boxes,
        WarmFigures { idle: 3, warming: 0, hits: 0, misses: 1 },
        "one more after a miss"
    );
    let warm_box = pool.take_warm_box(&Wood(0)).expect("a warm box");
    assert_eq!((pool.figures().total, pool.figures().warming), (3, 1), "a taken box has left the pool");
    drop(warm_box);
    for warm_box in pool.lock().warm_boxes.values() {
        warm_box.is_dead.send_replace(true);
    }
    assert!(pool.take_warm_box(&Wood(0)).is_none(), "a dead one is not handed out");
    pool.maker.leave.add_permits(4);
    settled().await;
    let figures = pool.figures();
    assert_eq!((figures.idle, figures.hits, figures.misses), (4, 1, 2));
    assert!(pool.take_warm_box(&Wood(1)).is_none(), "of another kind");
    pool.stop().await;
    assert_eq!((pool.figures().total, census.there.load(Ordering::SeqCst)), (0, 0));
    assert!(pool.take_warm_box(&Wood(0)).is_none());
}

#[tokio::test(start_paused = true)]
async fn changed_bounds_apply_to_warm_boxes_at_once() {
    let (pool, census) = pool(bounds(4, 2), usize::MAX >> 4);
    assert!(pool.take_warm_box(&Wood(0)).is_none());
    settled().await;
    assert_eq!(pool.figures().idle, 3);
    // With a lower maximum, warm boxes are ended before session boxes.
    drop(acquire(&pool, 7, OnBusy::Wait).await);
    pool.set_bounds(bounds(2, 2));
    settled().await;
    assert_eq!((pool.figures().idle, pool.figures().warm_boxes.idle), (2, 1));
    pool.set_bounds(bounds(4, 0));
    settled().await;
    assert_eq!((pool.figures().idle, pool.figures().warm_boxes.idle), (1, 0), "none is wanted");
    assert!(pool.take_warm_box(&Wood(0)).is_none());
    assert_eq!(pool.figures().warm_boxes.misses, 1, "it is not counted");
    pool.set_bounds(bounds(4, 1));
    assert!(pool.take_warm_box(&Wood(0)).is_none());
    settled().await;
    assert_eq!(pool.figures().warm_boxes.idle, 2);
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert!(pool.take_warm_box(&Wood(0)).is_some(), "it stays until the idle timeout");
    tokio::time::sleep(Duration::from_secs(150)).await;
    settled().await;
    assert_eq!(
        (pool.figures().total, pool.figures().warm_boxes.idle),
        (1, 1),
        "the minimum stays, the session's box expired"
    );
    tokio::time::sleep(Duration::from_secs(151)).await;
    settled().await;
    assert_eq!(
        (pool.figures().total, census.there.load(Ordering::SeqCst)),
        (0, 0),
        "the kind was not requested for the idle timeout"
    );
}

#[tokio::test]
async fn session_evicts_warm_box() {
    let (pool, census) = pool(bounds(2, 2), usize::MAX >> 4);
    assert!(pool.take_warm_box(&Wood(0)).is_none());
    settled().await;
    assert_eq!(pool.figures().warm_boxes.idle, 2);
    let first = acquire(&pool, 0, OnBusy::Fail).await.expect("a slot");
    let second = acquire(&pool, 1, OnBusy::Fail).await.expect("a slot");
    let figures = pool.figures();
    assert_eq!((figures.busy, figures.total, census.most.load(Ordering::SeqCst)), (2, 2, 2));
    assert!(pool.take_warm_box(&Wood(0)).is_none());
    assert!(matches!(acquire(&pool, 2, OnBusy::Fail).await, Err(Refused::Busy)));
    drop(first);
    drop(second);
    settled().await;
    assert_eq!(pool.figures().warm_boxes.idle, 0, "a warm box evicts no session box");
}

#[tokio::test]
async fn dismissed_box_is_not_given_to_next_lease() {
    let (pool, census) = pool(bounds(2, 0), 0);
    let lease = acquire(&pool, 0, OnBusy::Wait).await.expect("a box");
    pool.dismiss(&0);
    assert!(lease.hold().is_none());
    let again = acquire(&pool, 0, OnBusy::Wait).await.expect("another box");
    assert!(!Arc::ptr_eq(lease.session_box(), again.session_box()));
    drop(lease);
    assert_eq!((pool.figures().busy, census.there.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn ending_session_box_is_found_until_its_last_process_ended() {
    let (pool, _) = pool(bounds(2, 0), 0);
    let lease = acquire(&pool, 0, OnBusy::Wait).await.expect("a box");
    let session_box = lease.session_box().clone();
    drop(lease);
    session_box.is_stuck.send_replace(true);
    pool.dismiss(&0);
    settled().await;
    assert!(pool.find(&0).is_none(), "an ending box is handed out");
    assert!(matches!(pool.hold_session(&0), Some(Present::Ending(found)) if Arc::ptr_eq(&found, &session_box)));
    session_box.is_stuck.send_replace(false);
    settled().await;
    assert!(pool.hold_session(&0).is_none());
    assert_eq!(Arc::strong_count(&session_box), 1, "the pool keeps a box that has ended");
}

#[tokio::test(start_paused = true)]
async fn held_session_box_does_not_end_for_being_idle() {
    let (pool, census) = pool(bounds(1, 0), 0);
    drop(acquire(&pool, 0, OnBusy::Wait).await.expect("a box"));
    let Some(Present::Kept(_, hold)) = pool.hold_session(&0) else { panic!("the box is ending") };
    tokio::time::sleep(Duration::from_secs(301)).await;
    settled().await;
    assert_eq!(census.there.load(Ordering::SeqCst), 1);
    drop(hold);
    tokio::time::sleep(Duration::from_secs(301)).await;
    settled().await;
    assert_eq!(census.there.load(Ordering::SeqCst), 0, "the control");
}
