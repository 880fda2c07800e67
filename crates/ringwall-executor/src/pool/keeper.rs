//! Owns the boxes and carries out the rules of `slots`: answers waiters, runs the tasks that make
//! and end boxes, and the timer.
//!
//! One lock guards everything. It is held while the rules decide and never across an await.
//! Dropping [`Waiting`] cancels a request at any point. A task that makes or ends a box reports to
//! the rules even if it panics.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::slots::{MemberId, Moment, OnBusy, Slots, Step, Ticket, Turn};
use super::{Bounds, Figures, PoolBoxes};

type Rule<M> = Slots<<M as PoolBoxes>::Key, <M as PoolBoxes>::Kind>;
type Steps<M> = Vec<Step<<M as PoolBoxes>::Kind>>;

pub struct Pool<M: PoolBoxes> {
    maker: M,
    held: Mutex<Held<M>>,
    began: Instant,
    runtime: Handle,
    /// Wakes the timer task for an earlier deadline or when the pool is dropped.
    changed: Arc<Notify>,
    emptied: Notify,
}

struct Held<M: PoolBoxes> {
    rule: Rule<M>,
    calls: HashMap<Ticket, mpsc::UnboundedSender<Turn>>,
    session_boxes: HashMap<MemberId, Arc<M::SessionBox>>,
    /// Session boxes from the decision to end them until their last process has ended.
    ending: HashMap<MemberId, Arc<M::SessionBox>>,
    warm_boxes: HashMap<MemberId, M::WarmBox>,
    /// When the timer task wakes next. Waking too early is harmless.
    alarm: Option<Moment>,
}

/// A session box whose processes may be running.
#[derive(Debug)]
pub enum Present<M: PoolBoxes> {
    /// While the hold lives, the pool does not end the box for being idle, worn or in the way.
    Kept(Arc<M::SessionBox>, Hold<M>),
    /// The pool is ending the box. Its processes may still run.
    Ending(Arc<M::SessionBox>),
}

/// Why a request got no box.
#[derive(Debug)]
pub enum Refused<Failure> {
    /// Another request uses it, and this one does not wait.
    Busy,
    /// No slot became free within `acquire_timeout`.
    TimedOut,
    /// It was ended while it was being made.
    Ended,
    Stopped,
    Failed(Failure),
}

/// Exclusive use of a session box. Dropping it returns the box to the pool.
#[derive(Debug)]
pub struct Lease<M: PoolBoxes> {
    pool: Arc<Pool<M>>,
    ticket: Ticket,
    id: MemberId,
    session_box: Arc<M::SessionBox>,
}

impl<M: PoolBoxes> Lease<M> {
    pub fn session_box(&self) -> &Arc<M::SessionBox> {
        &self.session_box
    }

    /// Keeps the box from being idle after this use, for processes that go on running. `None` if
    /// the box is ending.
    pub fn hold(&self) -> Option<Hold<M>> {
        let is_held = self.pool.change(|slots, _| (slots.hold(self.id), Vec::new()));
        is_held.then(|| Hold { pool: self.pool.clone(), id: self.id })
    }
}

impl<M: PoolBoxes> Drop for Lease<M> {
    fn drop(&mut self) {
        self.pool.change(|slots, now| ((), slots.release(self.ticket, self.id, now)));
    }
}

/// Keeps a session box from counting as idle. Others may still acquire it.
#[derive(Debug)]
pub struct Hold<M: PoolBoxes> {
    pool: Arc<Pool<M>>,
    id: MemberId,
}

impl<M: PoolBoxes> Drop for Hold<M> {
    fn drop(&mut self) {
        self.pool.change(|slots, now| ((), slots.release_hold(self.id, now)));
    }
}

impl<M: PoolBoxes> fmt::Debug for Pool<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl<M: PoolBoxes> Pool<M> {
    /// Must be called inside a tokio runtime, which then runs the pool's tasks.
    pub fn new(maker: M, bounds: Bounds) -> Arc<Self> {
        let held = Held {
            rule: Slots::new(bounds),
            calls: HashMap::new(),
            session_boxes: HashMap::new(),
            ending: HashMap::new(),
            warm_boxes: HashMap::new(),
            alarm: None,
        };
        let pool = Arc::new(Self {
            maker,
            held: Mutex::new(held),
            began: Instant::now(),
            runtime: Handle::current(),
            changed: Arc::default(),
            emptied: Notify::new(),
        });
        pool.runtime.spawn(watch_the_clock(Arc::downgrade(&pool), pool.changed.clone()));
        pool
    }

    pub fn figures(&self) -> Figures {
        self.lock().rule.figures()
    }

    pub fn set_bounds(self: &Arc<Self>, bounds: Bounds) {
        self.change(|rule, now| ((), rule.set_bounds(bounds, now)));
    }

    /// Keeps `min_instances` warm boxes of this kind ready without demand, and of no other kind.
    pub fn keep(self: &Arc<Self>, kind: Option<M::Kind>) {
        self.change(|rule, now| ((), rule.keep(kind, now)));
    }

    /// Takes a living warm box of this kind, if there is one. It then belongs to the caller.
    pub fn take_warm_box(self: &Arc<Self>, kind: &M::Kind) -> Option<M::WarmBox> {
        let now = self.now();
        let mut held = self.lock();
        let Held { rule, warm_boxes, .. } = &mut *held;
        let (taken, steps) = rule.take_warm_box(kind, |id| warm_boxes.get(&id).is_some_and(M::is_alive), now);
        let warm_box = taken.and_then(|id| warm_boxes.remove(&id));
        self.perform(held, steps);
        warm_box
    }

    /// Acquires the box of a session, made by `make` if there is none. Dropping the future at any
    /// point leaves nothing behind.
    pub async fn acquire<Failure: Send + 'static, Making>(
        self: &Arc<Self>,
        key: &M::Key,
        on_busy: OnBusy,
        make: impl FnOnce() -> Making,
    ) -> Result<Lease<M>, Refused<Failure>>
    where
        Making: Future<Output = Result<M::SessionBox, Failure>> + Send + 'static,
    {
        let (mut waiting, timeout) = self.enter(key, on_busy);
        let in_time = tokio::time::timeout(timeout, waiting.turn()).await;
        match in_time {
            Err(_) => Err(Refused::TimedOut),
            Ok(Called::Away(refused)) => Err(refused),
            Ok(Called::ToHave(id, session_box)) => Ok(waiting.lease(id, session_box)),
            Ok(Called::ToMake(id)) => {
                waiting.unbegun = None;
                let made = self.begin(id, make());
                match made.await {
                    Ok(Ok(())) => waiting.made(id).ok_or(Refused::Ended),
                    Ok(Err(failure)) => Err(Refused::Failed(failure)),
                    // The task ended without an answer: the runtime shuts down, or `make` panicked.
                    Err(_) => Err(Refused::Ended),
                }
            }
        }
    }

    /// The current box of a session, also while another request uses it.
    pub fn find(&self, key: &M::Key) -> Option<Arc<M::SessionBox>> {
        let held = self.lock();
        held.rule.sessions.get(key).and_then(|id| held.session_boxes.get(id)).cloned()
    }

    /// The box of a session, also one that is being ended, which [`Pool::find`] does not return.
    pub fn hold_session(self: &Arc<Self>, key: &M::Key) -> Option<Present<M>> {
        let mut held = self.lock();
        let id = held.rule.sessions.get(key).copied()?;
        if let Some(session_box) = held.ending.get(&id) {
            return Some(Present::Ending(session_box.clone()));
        }
        let session_box = held.session_boxes.get(&id)?.clone();
        held.rule.hold(id).then(|| Present::Kept(session_box, Hold { pool: self.clone(), id }))
    }

    /// Sessions that have a box or for which one is being made.
    pub fn keys(&self) -> Vec<M::Key> {
        self.lock().rule.sessions.keys().cloned().collect()
    }

    /// Ends the box of a session, also while it is used.
    pub fn dismiss(self: &Arc<Self>, key: &M::Key) {
        self.change(|rule, now| ((), rule.dismiss(key, now)));
    }

    /// Stops the pool. When this returns no box is left and none will be made.
    pub async fn stop(self: &Arc<Self>) {
        self.change(|rule, now| ((), rule.stop(now)));
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.lock().rule.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Applies one event to the rules and performs the resulting steps.
    fn change<T>(self: &Arc<Self>, think: impl FnOnce(&mut Rule<M>, Moment) -> (T, Steps<M>)) -> T {
        let now = self.now();
        let mut held = self.lock();
        let (answer, steps) = think(&mut held.rule, now);
        self.perform(held, steps);
        answer
    }

    fn enter(self: &Arc<Self>, key: &M::Key, on_busy: OnBusy) -> (Waiting<M>, std::time::Duration) {
        let (call, turns) = mpsc::unbounded_channel();
        let now = self.now();
        let mut held = self.lock();
        let (ticket, steps) = held.rule.acquire(key, on_busy, now);
        held.calls.insert(ticket, call);
        let timeout = held.rule.bounds.acquire_timeout;
        self.perform(held, steps);
        (Waiting { pool: self.clone(), ticket, turns, unbegun: None, is_over: false }, timeout)
    }

    /// Makes a session box in its own task: if the request is cancelled meanwhile, the next waiter
    /// gets the box.
    fn begin<Failure: Send + 'static>(
        self: &Arc<Self>,
        id: MemberId,
        make: impl Future<Output = Result<M::SessionBox, Failure>> + Send + 'static,
    ) -> oneshot::Receiver<Result<(), Failure>> {
        let (told, made) = oneshot::channel();
        let place = TaskSlot { pool: self.clone(), id, task: Task::Makes };
        self.runtime.spawn(async move {
            let answer = match make.await {
                Ok(session_box) => {
                    place.fill(Arc::new(session_box));
                    Ok(())
                }
                Err(failure) => {
                    drop(place);
                    Err(failure)
                }
            };
            // The receiver is gone if the request was cancelled.
            let _ = told.send(answer);
        });
        made
    }

    fn perform(self: &Arc<Self>, mut held: MutexGuard<'_, Held<M>>, steps: Steps<M>) {
        let mut steps = VecDeque::from(steps);
        let mut jobs: Vec<Job<M>> = Vec::new();
        while let Some(step) = steps.pop_front() {
            match step {
                Step::Serve(ticket, turn) => {
                    // A missing or closed channel belongs to a request that is about to cancel
                    // itself.
                    if let Some(call) = held.calls.get(&ticket) {
                        let _ = call.send(turn);
                    }
                }
                Step::MakeWarmBox(id, kind) => jobs.push(Job::MakeWarmBox(id, kind)),
                Step::End(id) => match (held.session_boxes.remove(&id), held.warm_boxes.remove(&id)) {
                    (None, None) => steps.extend(held.rule.ended(id, self.now())),
                    (session_box, warm_box) => {
                        held.ending.extend(session_box.clone().map(|session_box| (id, session_box)));
                        jobs.push(Job::End(id, session_box, warm_box));
                    }
                },
            }
        }
        let is_empty = held.rule.is_empty();
        // Usually no deadline is earlier, and the timer task keeps sleeping.
        let next = held.rule.next_tick(self.now());
        let is_earlier = next.is_some_and(|next| held.alarm.is_none_or(|alarm| next < alarm));
        if is_earlier {
            held.alarm = next;
        }
        drop(held);
        // Spawn without the lock: a runtime that shuts down drops the task at once, and the drop
        // calls back into the pool.
        for job in jobs {
            match job {
                Job::MakeWarmBox(id, kind) => self.make_warm_box(id, kind),
                Job::End(id, session_box, warm_box) => self.end(id, session_box, warm_box),
            }
        }
        if is_earlier {
            self.changed.notify_one();
        }
        if is_empty {
            self.emptied.notify_waiters();
        }
    }

    fn make_warm_box(self: &Arc<Self>, id: MemberId, kind: M::Kind) {
        let place = TaskSlot { pool: self.clone(), id, task: Task::Makes };
        self.runtime.spawn(async move {
            let tools = place.pool.maker.tools();
            // Rebound after the tools, so that the slot is dropped before them.
            let place = place;
            let Some(tools) = &tools else { return };
            if let Some(warm_box) = M::make_warm_box(tools, &kind).await {
                place.fill_with_warm_box(warm_box);
            }
        });
    }

    fn end(self: &Arc<Self>, id: MemberId, session_box: Option<Arc<M::SessionBox>>, warm_box: Option<M::WarmBox>) {
        let place = TaskSlot { pool: self.clone(), id, task: Task::Ends };
        self.runtime.spawn(async move {
            if let Some(session_box) = session_box {
                M::end(session_box).await;
            }
            if let Some(warm_box) = warm_box {
                M::end_warm_box(warm_box).await;
            }
            drop(place);
        });
    }

    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Held<M>> {
        self.held.lock()
    }
}

impl<M: PoolBoxes> Drop for Pool<M> {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// A request that waits for a box; dropping it cancels the request.
struct Waiting<M: PoolBoxes> {
    pool: Arc<Pool<M>>,
    ticket: Ticket,
    turns: mpsc::UnboundedReceiver<Turn>,
    /// The box to make, until the task that makes it has started.
    unbegun: Option<MemberId>,
    is_over: bool,
}

/// The answer to a waiting request.
enum Called<M: PoolBoxes, Failure> {
    ToHave(MemberId, Arc<M::SessionBox>),
    ToMake(MemberId),
    Away(Refused<Failure>),
}

impl<M: PoolBoxes> Waiting<M> {
    async fn turn<Failure>(&mut self) -> Called<M, Failure> {
        loop {
            match self.turns.recv().await {
                Some(Turn::Make(id)) => {
                    self.unbegun = Some(id);
                    return Called::ToMake(id);
                }
                Some(Turn::Have(id)) => {
                    let mut held = self.pool.lock();
                    // Fails if the box has died since; another turn follows.
                    if held.rule.take(self.ticket, id)
                        && let Some(session_box) = held.session_boxes.get(&id)
                    {
                        return Called::ToHave(id, session_box.clone());
                    }
                }
                Some(Turn::Busy) => return Called::Away(Refused::Busy),
                Some(Turn::Stopped) | None => return Called::Away(Refused::Stopped),
            }
        }
    }

    /// `None` if the box was ended before the request that made it could take it.
    fn made(self, id: MemberId) -> Option<Lease<M>> {
        let held = self.pool.lock();
        let session_box = held.session_boxes.get(&id).filter(|_| held.rule.has(self.ticket, id)).cloned();
        drop(held);
        session_box.map(|session_box| self.lease(id, session_box))
    }

    fn lease(mut self, id: MemberId, session_box: Arc<M::SessionBox>) -> Lease<M> {
        self.pool.lock().calls.remove(&self.ticket);
        self.is_over = true;
        Lease { pool: self.pool.clone(), ticket: self.ticket, id, session_box }
    }
}

impl<M: PoolBoxes> Drop for Waiting<M> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let now = self.pool.now();
        let mut held = self.pool.lock();
        held.calls.remove(&self.ticket);
        // A turn to make a box may be unread; that box will not be made. Checked under the lock, so
        // that no turn arrives after this loop.
        while let Ok(turn) = self.turns.try_recv() {
            if let Turn::Make(id) = turn {
                self.unbegun = Some(id);
            }
        }
        let mut steps = held.rule.cancel(self.ticket, now);
        if let Some(id) = self.unbegun {
            steps.extend(held.rule.failed(id, now));
        }
        self.pool.perform(held, steps);
    }
}

/// Work for a task.
enum Job<M: PoolBoxes> {
    MakeWarmBox(MemberId, M::Kind),
    End(MemberId, Option<Arc<M::SessionBox>>, Option<M::WarmBox>),
}

enum Task {
    Makes,
    Ends,
}

/// A slot owned by a task. Its drop reports to the rules however the task ends.
struct TaskSlot<M: PoolBoxes> {
    pool: Arc<Pool<M>>,
    id: MemberId,
    task: Task,
}

impl<M: PoolBoxes> TaskSlot<M> {
    fn fill(&self, session_box: Arc<M::SessionBox>) {
        let pool = Arc::downgrade(&self.pool);
        let (id, watched) = (self.id, session_box.clone());
        let mut held = self.pool.lock();
        held.session_boxes.insert(id, session_box);
        let steps = held.rule.made(id, self.pool.now());
        self.pool.perform(held, steps);
        self.pool.runtime.spawn(watch_a_box(pool, id, watched));
    }

    fn fill_with_warm_box(&self, warm_box: M::WarmBox) {
        let mut held = self.pool.lock();
        held.warm_boxes.insert(self.id, warm_box);
        let steps = held.rule.made(self.id, self.pool.now());
        self.pool.perform(held, steps);
    }
}

impl<M: PoolBoxes> Drop for TaskSlot<M> {
    /// After a successful start the report has no effect.
    fn drop(&mut self) {
        match self.task {
            Task::Makes => self.pool.change(|rule, now| ((), rule.failed(self.id, now))),
            Task::Ends => {
                let ended = self.pool.lock().ending.remove(&self.id);
                drop(ended);
                self.pool.change(|rule, now| ((), rule.ended(self.id, now)));
            }
        }
    }
}

/// Reports the death of a box, so that it is not handed out and its slot becomes free.
async fn watch_a_box<M: PoolBoxes>(pool: Weak<Pool<M>>, id: MemberId, session_box: Arc<M::SessionBox>) {
    M::died(&session_box).await;
    drop(session_box);
    if let Some(pool) = pool.upgrade() {
        pool.change(|rule, now| ((), rule.died(id, now)));
    }
}

/// The timer task. It holds a weak reference, so it does not keep the pool alive.
async fn watch_the_clock<M: PoolBoxes>(pool: Weak<Pool<M>>, changed: Arc<Notify>) {
    loop {
        let next = {
            let Some(pool) = pool.upgrade() else { return };
            let mut held = pool.lock();
            held.alarm = held.rule.next_tick(pool.now());
            held.alarm.map(|moment| pool.began + moment)
        };
        match next {
            None => changed.notified().await,
            Some(next) => {
                if tokio::time::timeout_at(next, changed.notified()).await.is_err() {
                    let Some(pool) = pool.upgrade() else { return };
                    pool.change(|rule, now| ((), rule.tick(now)));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
