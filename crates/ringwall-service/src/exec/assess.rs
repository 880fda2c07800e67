//! Assesses the risk of code: small texts on the caller's thread, larger ones on threads of their
//! own, fairly between users.
//!
//! Each size class has its own queue: round robin between users, bounded per user and in total. One
//! user gets at most half of the threads of a class. A slot belongs to the thread and not to the
//! caller, so a caller that disconnects does not free it early.

use std::sync::Arc;

use ringwall_ids::UserId;
use ringwall_record::Scope;
use ringwall_risk::{Assessment, Content};
use tokio::sync::oneshot;

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::Error;
use crate::exec::queue::{Admission, ExecQueue, QueueLimits, Slot};
use crate::service::Service;

/// Assessing this many bytes takes less time than handing them to another thread.
const TINY: usize = 512;
/// Takes about 1 ms and fits on any thread's stack.
const SMALL: usize = 8 * 1024;
/// Takes some tens of milliseconds. Larger texts may take seconds, so they have separate threads.
const MIDDLE: usize = 64 * 1024;

const MAX_WAITING: u32 = 64;
const MAX_WAITING_PER_USER: u32 = 8;

impl Service {
    /// Assesses what a text could do. Advice only: nothing is run or recorded.
    pub async fn assess(&self, by: &Principal, content: Content, text: String) -> Result<Assessment, Error> {
        let user = match by.scope() {
            Scope::User(user) | Scope::Agent(user, _) => user,
            // Operators have no user of their own; each token counts as one.
            Scope::All => by.caller().parse()?,
        };
        self.assess_for(&user, content, text).await
    }

    pub(crate) async fn assess_for(&self, user: &UserId, content: Content, text: String) -> Result<Assessment, Error> {
        if text.len() <= TINY {
            return Ok(ringwall_risk::assess(content, &text));
        }
        if text.len() <= SMALL {
            return blocking::in_place(|| Ok(ringwall_risk::assess(content, &text))).await;
        }
        self.inner.assessors.assess(user, content, text).await
    }
}

/// The threads for larger texts and the queues for them.
#[derive(Debug)]
pub(crate) struct Assessors {
    middle: Arc<ExecQueue>,
    large: Arc<ExecQueue>,
}

impl Default for Assessors {
    fn default() -> Self {
        Self { middle: ExecQueue::new(limits(4)), large: ExecQueue::new(limits(2)) }
    }
}

/// One user gets at most half of the threads.
fn limits(threads: u32) -> QueueLimits {
    QueueLimits {
        max_running: threads,
        max_running_per_user: threads / 2,
        max_waiting: MAX_WAITING,
        max_waiting_per_user: MAX_WAITING_PER_USER,
    }
}

impl Assessors {
    async fn assess(&self, user: &UserId, content: Content, text: String) -> Result<Assessment, Error> {
        let (size, stack) = (text.len(), ringwall_risk::stack_needed(text.len()));
        self.run(user, size, stack, move || ringwall_risk::assess(content, &text)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        user: &UserId,
        size: usize,
        stack: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let queue = if size <= MIDDLE { &self.middle } else { &self.large };
        let refused = Error::TooManyAssessments { per_user: MAX_WAITING_PER_USER, all: MAX_WAITING };
        let slot = match queue.enter(user).ok_or(refused)? {
            Admission::Immediate(slot) => slot,
            Admission::Queued(ticket) => {
                let left = || Error::Runtime { message: "the queue for assessments was closed".to_owned() };
                ticket.wait().await.ok_or_else(left)?
            }
        };
        on_a_thread(slot, stack, work).await
    }
}

/// Runs `work` to its end, even if the caller is gone.
async fn on_a_thread<T: Send + 'static>(
    slot: Slot,
    stack: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (tell, told) = oneshot::channel();
    let run = move || {
        let done = work();
        drop(slot);
        // The caller may be gone.
        let _ = tell.send(done);
    };
    let thread = std::thread::Builder::new().name("assess".into()).stack_size(stack).spawn(run);
    thread.map_err(|error| Error::runtime("start a thread that judges a text", &error))?;
    told.await.map_err(|error| Error::runtime("judge a text", &error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::future::join_all;
    use parking_lot::Mutex;

    use super::*;

    const LARGE: usize = MIDDLE + 1;
    const STACK: usize = 64 * 1024;

    fn user(name: &str) -> UserId {
        name.parse().expect("a user id")
    }

    /// Work that reports its start and ends on command.
    struct Gate {
        begun: tokio::sync::mpsc::UnboundedReceiver<()>,
        end: mpsc::Sender<()>,
    }

    fn gated() -> (Gate, impl FnOnce() + Send + 'static) {
        let (begin, begun) = tokio::sync::mpsc::unbounded_channel();
        let (end, ended) = mpsc::channel();
        let work = move || {
            begin.send(()).expect("a test that waits");
            ended.recv().expect("an end");
        };
        (Gate { begun, end }, work)
    }

    #[tokio::test]
    async fn deeply_nested_text_does_not_exhaust_the_stack() {
        // The parser recurses once per level. On a default stack this would overflow and kill the
        // server.
        for deep in ["{a:", "label:{"] {
            let text = deep.repeat(192 * 1024 / deep.len());
            let assessors = Assessors::default();
            let assessment = assessors.assess(&user("u"), Content::Javascript, text).await.expect("an assessment");
            assert!(assessment.requires_isolation(), "{deep}");
        }
    }

    #[tokio::test]
    async fn caller_that_goes_away_frees_no_slot() {
        let assessors = Arc::new(Assessors::default());
        let (mut gate, work) = gated();
        let asking = tokio::spawn({
            let assessors = assessors.clone();
            async move { assessors.run(&user("u"), LARGE, STACK, work).await }
        });
        gate.begun.recv().await.expect("a beginning");
        asking.abort();
        assert!(asking.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(assessors.large.counts().running, 1, "the work continues");
        gate.end.send(()).expect("a thread that waits");
    }

    /// One user's large texts hold half of the threads until the end of the test. Another user's
    /// text finishes.
    #[tokio::test]
    async fn large_texts_of_one_user_do_not_block_another_user() {
        for (size, threads) in [(SMALL + 1, 2), (LARGE, 1)] {
            let assessors = Arc::new(Assessors::default());
            let (mut gates, mut blocked) = (Vec::new(), Vec::new());
            for _ in 0..MAX_WAITING_PER_USER {
                let (gate, work) = gated();
                let assessors = assessors.clone();
                blocked.push(tokio::spawn(async move { assessors.run(&user("many"), size, STACK, work).await }));
                gates.push(gate);
            }
            for gate in &mut gates[..threads] {
                gate.begun.recv().await.expect("a beginning");
            }
            // Control: the same user has to wait.
            let queue = if size <= MIDDLE { &assessors.middle } else { &assessors.large };
            assert!(matches!(queue.enter(&user("many")), Some(Admission::Queued(_))));
            assert_eq!(assessors.run(&user("one"), size, STACK, || 7).await.expect("an assessment"), 7);
            gates.iter().for_each(|gate| gate.end.send(()).expect("work that waits"));
            for done in join_all(blocked).await {
                done.expect("a task").expect("an assessment");
            }
        }
    }

    /// With all threads in use, at most one waiting text of a user starts before another user's
    /// first.
    #[tokio::test]
    async fn waiting_users_take_turns() {
        let assessors = Arc::new(Assessors {
            large: ExecQueue::new(QueueLimits { max_running: 1, ..limits(2) }),
            ..Assessors::default()
        });
        let (mut gate, work) = gated();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = vec![tokio::spawn({
            let assessors = assessors.clone();
            async move { assessors.run(&user("many"), LARGE, STACK, work).await }
        })];
        gate.begun.recv().await.expect("a beginning");
        for (place, name) in (0..).zip(["many", "many", "many", "one"]) {
            let (assessors_of_task, order) = (assessors.clone(), order.clone());
            let note = move || order.lock().push(name);
            waiting.push(tokio::spawn(async move { assessors_of_task.run(&user(name), LARGE, STACK, note).await }));
            // The tasks of this runtime share one thread, so each is queued before the next one
            // starts.
            while assessors.large.counts().waiting != place + 1 {
                tokio::task::yield_now().await;
            }
        }
        gate.end.send(()).expect("work that waits");
        for done in join_all(waiting).await {
            done.expect("a task").expect("an assessment");
        }
        assert_eq!(*order.lock(), ["many", "one", "many", "many"]);
    }

    #[tokio::test]
    async fn too_many_waiting_texts_of_one_user_are_refused() {
        let assessors = Assessors::default();
        let mut held = Vec::new();
        for _ in 0..=MAX_WAITING_PER_USER {
            held.push(assessors.large.enter(&user("many")).expect("a place"));
        }
        let refused = assessors.run(&user("many"), LARGE, STACK, || ()).await.expect_err("a full queue");
        assert_eq!(refused.code(), "QUEUE_FULL");
        assert!(refused.to_string().contains("at most 8 per user and 64 in total"), "{refused}");
        assessors.run(&user("one"), LARGE, STACK, || ()).await.expect("another user's place");
    }
}
