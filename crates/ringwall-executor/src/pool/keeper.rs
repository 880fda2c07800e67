//! Holds the boxes, and does what the rule says: wakes who waits, starts tasks that make and end boxes, looks at the clock.
//!
//! One lock, held for as long as the rule thinks and never across an await. Whoever stops waiting, at whatever point, is
//! taken out of the rule by the drop of [`Waiting`]; a task that makes or ends a box tells the rule also when it panics.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::bounds::Bounds;
use super::boxes::Maker;
use super::figures::Figures;
use super::lease::{Hold, Lease};
use super::places::{MemberId, Moment, OnBusy, Places, Step, Ticket, Turn};

type Rule<M> = Places<<M as Maker>::Key, <M as Maker>::Kind>;
type Steps<M> = Vec<Step<<M as Maker>::Kind>>;

pub struct Pool<M: Maker> {
    maker: M,
    held: Mutex<Held<M>>,
    began: Instant,
    runtime: Handle,
    /// For the task that looks at the clock, and for whoever waits for the end of all boxes.
    changed: Arc<Notify>,
    emptied: Notify,
}

struct Held<M: Maker> {
    rule: Rule<M>,
    calls: HashMap<Ticket, mpsc::UnboundedSender<Turn>>,
    residents: HashMap<MemberId, Arc<M::Resident>>,
    /// Session boxes from the decision to end them until their last process has ended.
    ending: HashMap<MemberId, Arc<M::Resident>>,
    spares: HashMap<MemberId, M::Spare>,
    /// When whoever looks at the clock does so next. It may be too early; then nothing is due.
    alarm: Option<Moment>,
}

/// The box of a session whose processes may run.
#[derive(Debug)]
pub enum Present<M: Maker> {
    /// The pool does not end the box for being idle, worn or in the way while the hold lives.
    Kept(Arc<M::Resident>, Hold<M>),
    /// The pool is ending the box. Its processes may still run.
    Ending(Arc<M::Resident>),
}

/// Why there is no box.
#[derive(Debug)]
pub enum Refused<Failure> {
    /// Somebody else has it, and whoever asked does not wait.
    Busy,
    /// Nothing became free in time.
    TimedOut,
    /// It was ended while it was being made.
    Ended,
    Stopped,
    Failed(Failure),
}

impl<M: Maker> fmt::Debug for Pool<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pool").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl<M: Maker> Pool<M> {
    /// To be called in a runtime: that is where boxes are made.
    pub fn new(maker: M, bounds: Bounds) -> Arc<Self> {
        let held = Held {
            rule: Places::new(bounds),
            calls: HashMap::new(),
            residents: HashMap::new(),
            ending: HashMap::new(),
            spares: HashMap::new(),
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

    /// Has `min_instances` spares of this sort wait, whether or not somebody asks for them, and of no other.
    pub fn keep(self: &Arc<Self>, kind: Option<M::Kind>) {
        self.change(|rule, now| ((), rule.keep(kind, now)));
    }

    /// A living spare of this sort, if there is one. It is out of the pool's hands then.
    pub fn take_spare(self: &Arc<Self>, kind: &M::Kind) -> Option<M::Spare> {
        let now = self.now();
        let mut held = self.lock();
        let Held { rule, spares, .. } = &mut *held;
        let (taken, steps) = rule.take_spare(kind, |id| spares.get(&id).is_some_and(M::is_alive), now);
        let spare = taken.and_then(|id| spares.remove(&id));
        self.perform(held, steps);
        spare
    }

    /// The box of a session, made by `make` where there is none. Dropping this at any point leaves nothing behind.
    pub async fn acquire<Failure: Send + 'static, Making>(
        self: &Arc<Self>,
        key: &M::Key,
        on_busy: OnBusy,
        make: impl FnOnce() -> Making,
    ) -> Result<Lease<M>, Refused<Failure>>
    where
        Making: Future<Output = Result<M::Resident, Failure>> + Send + 'static,
    {
        let (mut waiting, patience) = self.enter(key, on_busy);
        let in_time = tokio::time::timeout(patience, waiting.turn()).await;
        match in_time {
            Err(_) => Err(Refused::TimedOut),
            Ok(Called::Away(refused)) => Err(refused),
            Ok(Called::ToHave(id, resident)) => Ok(waiting.lease(id, resident)),
            Ok(Called::ToMake(id)) => {
                waiting.unbegun = None;
                let made = self.begin(id, make());
                match made.await {
                    Ok(Ok(())) => waiting.made(id).ok_or(Refused::Ended),
                    Ok(Err(failure)) => Err(Refused::Failed(failure)),
                    // The task is gone without a word: the runtime ends, or what makes boxes has panicked.
                    Err(_) => Err(Refused::Ended),
                }
            }
        }
    }

    /// The box of a session as it is, whoever uses it.
    pub fn find(&self, key: &M::Key) -> Option<Arc<M::Resident>> {
        let held = self.lock();
        held.rule.sessions.get(key).and_then(|id| held.residents.get(id)).cloned()
    }

    /// The box of a session, also one that is being ended, which [`Pool::find`] does not return.
    pub fn hold_session(self: &Arc<Self>, key: &M::Key) -> Option<Present<M>> {
        let mut held = self.lock();
        let id = held.rule.sessions.get(key).copied()?;
        if let Some(resident) = held.ending.get(&id) {
            return Some(Present::Ending(resident.clone()));
        }
        let resident = held.residents.get(&id)?.clone();
        held.rule.hold(id).then(|| Present::Kept(resident, Hold { pool: self.clone(), id }))
    }

    /// The sessions that have one, or for which one is being made.
    pub fn keys(&self) -> Vec<M::Key> {
        self.lock().rule.sessions.keys().cloned().collect()
    }

    /// Ends the box of a session, whoever uses it.
    pub fn dismiss(self: &Arc<Self>, key: &M::Key) {
        self.change(|rule, now| ((), rule.dismiss(key, now)));
    }

    /// Ends everything. When this returns, there is no box, and there will be none.
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

    /// One thought of the rule, and what follows from it.
    pub(super) fn change<T>(self: &Arc<Self>, think: impl FnOnce(&mut Rule<M>, Moment) -> (T, Steps<M>)) -> T {
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
        let patience = held.rule.bounds.acquire_timeout;
        self.perform(held, steps);
        (Waiting { pool: self.clone(), ticket, turns, unbegun: None, is_over: false }, patience)
    }

    /// Makes a session's box in a task of its own: whoever wants it may give up meanwhile, and somebody else be glad of it.
    fn begin<Failure: Send + 'static>(
        self: &Arc<Self>,
        id: MemberId,
        make: impl Future<Output = Result<M::Resident, Failure>> + Send + 'static,
    ) -> oneshot::Receiver<Result<(), Failure>> {
        let (told, made) = oneshot::channel();
        let place = Place { pool: self.clone(), id, task: Task::Makes };
        self.runtime.spawn(async move {
            let answer = match make.await {
                Ok(resident) => {
                    place.fill(Arc::new(resident));
                    Ok(())
                }
                Err(failure) => {
                    drop(place);
                    Err(failure)
                }
            };
            // Nobody may be listening any more.
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
                    // Whoever has gone meanwhile is on the way to say so.
                    if let Some(call) = held.calls.get(&ticket) {
                        let _ = call.send(turn);
                    }
                }
                Step::MakeSpare(id, kind) => jobs.push(Job::MakeSpare(id, kind)),
                Step::End(id) => match (held.residents.remove(&id), held.spares.remove(&id)) {
                    (None, None) => steps.extend(held.rule.ended(id, self.now())),
                    (resident, spare) => {
                        held.ending.extend(resident.clone().map(|resident| (id, resident)));
                        jobs.push(Job::End(id, resident, spare));
                    }
                },
            }
        }
        let is_empty = held.rule.is_empty();
        // Mostly there is nothing earlier to look for, and then nobody is woken.
        let next = held.rule.next_tick(self.now());
        let is_earlier = next.is_some_and(|next| held.alarm.is_none_or(|alarm| next < alarm));
        if is_earlier {
            held.alarm = next;
        }
        drop(held);
        // Without the lock: a runtime that ends drops a task at once, and that tells the rule.
        for job in jobs {
            match job {
                Job::MakeSpare(id, kind) => self.make_spare(id, kind),
                Job::End(id, resident, spare) => self.end(id, resident, spare),
            }
        }
        if is_earlier {
            self.changed.notify_one();
        }
        if is_empty {
            self.emptied.notify_waiters();
        }
    }

    fn make_spare(self: &Arc<Self>, id: MemberId, kind: M::Kind) {
        let place = Place { pool: self.clone(), id, task: Task::Makes };
        self.runtime.spawn(async move {
            let tools = place.pool.maker.tools();
            // After the tools, so that it goes before them.
            let place = place;
            let Some(tools) = &tools else { return };
            if let Some(spare) = M::make_spare(tools, &kind).await {
                place.fill_with_spare(spare);
            }
        });
    }

    fn end(self: &Arc<Self>, id: MemberId, resident: Option<Arc<M::Resident>>, spare: Option<M::Spare>) {
        let place = Place { pool: self.clone(), id, task: Task::Ends };
        self.runtime.spawn(async move {
            if let Some(resident) = resident {
                M::end(resident).await;
            }
            if let Some(spare) = spare {
                M::end_spare(spare).await;
            }
            drop(place);
        });
    }

    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Held<M>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Maker> Drop for Pool<M> {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

/// Somebody who wants a box.
struct Waiting<M: Maker> {
    pool: Arc<Pool<M>>,
    ticket: Ticket,
    turns: mpsc::UnboundedReceiver<Turn>,
    /// The box that they were told to make, until they do.
    unbegun: Option<MemberId>,
    is_over: bool,
}

/// What somebody is called for.
enum Called<M: Maker, Failure> {
    ToHave(MemberId, Arc<M::Resident>),
    ToMake(MemberId),
    Away(Refused<Failure>),
}

impl<M: Maker> Waiting<M> {
    async fn turn<Failure>(&mut self) -> Called<M, Failure> {
        loop {
            match self.turns.recv().await {
                Some(Turn::Make(id)) => {
                    self.unbegun = Some(id);
                    return Called::ToMake(id);
                }
                Some(Turn::Have(id)) => {
                    let mut held = self.pool.lock();
                    // Not so when it has died since; then another turn comes.
                    if held.rule.take(self.ticket, id)
                        && let Some(resident) = held.residents.get(&id)
                    {
                        return Called::ToHave(id, resident.clone());
                    }
                }
                Some(Turn::Busy) => return Called::Away(Refused::Busy),
                Some(Turn::Stopped) | None => return Called::Away(Refused::Stopped),
            }
        }
    }

    /// Nothing when the box was ended before its maker had it.
    fn made(self, id: MemberId) -> Option<Lease<M>> {
        let held = self.pool.lock();
        let resident = held.residents.get(&id).filter(|_| held.rule.has(self.ticket, id)).cloned();
        drop(held);
        resident.map(|resident| self.lease(id, resident))
    }

    fn lease(mut self, id: MemberId, resident: Arc<M::Resident>) -> Lease<M> {
        self.pool.lock().calls.remove(&self.ticket);
        self.is_over = true;
        Lease { pool: self.pool.clone(), ticket: self.ticket, id, resident }
    }
}

impl<M: Maker> Drop for Waiting<M> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let now = self.pool.now();
        let mut held = self.pool.lock();
        held.calls.remove(&self.ticket);
        // What was said and not heard: nobody begins to make it. Under the lock, so that nothing is said after this look.
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

/// What a task is to do.
enum Job<M: Maker> {
    MakeSpare(MemberId, M::Kind),
    End(MemberId, Option<Arc<M::Resident>>, Option<M::Spare>),
}

enum Task {
    Makes,
    Ends,
}

/// A place in the hands of a task. Whatever becomes of the task, the rule hears of it.
struct Place<M: Maker> {
    pool: Arc<Pool<M>>,
    id: MemberId,
    task: Task,
}

impl<M: Maker> Place<M> {
    fn fill(&self, resident: Arc<M::Resident>) {
        let pool = Arc::downgrade(&self.pool);
        let (id, watched) = (self.id, resident.clone());
        let mut held = self.pool.lock();
        held.residents.insert(id, resident);
        let steps = held.rule.made(id, self.pool.now());
        self.pool.perform(held, steps);
        self.pool.runtime.spawn(watch_a_box(pool, id, watched));
    }

    fn fill_with_spare(&self, spare: M::Spare) {
        let mut held = self.pool.lock();
        held.spares.insert(self.id, spare);
        let steps = held.rule.made(self.id, self.pool.now());
        self.pool.perform(held, steps);
    }
}

impl<M: Maker> Drop for Place<M> {
    /// After a box was made this says nothing new, and is not heard.
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

/// A dead box is not handed out, and makes room.
async fn watch_a_box<M: Maker>(pool: Weak<Pool<M>>, id: MemberId, resident: Arc<M::Resident>) {
    M::died(&resident).await;
    drop(resident);
    if let Some(pool) = pool.upgrade() {
        pool.change(|rule, now| ((), rule.died(id, now)));
    }
}

/// Does not keep the pool alive.
async fn watch_the_clock<M: Maker>(pool: Weak<Pool<M>>, changed: Arc<Notify>) {
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
