//! Checks the queue rules against a simple model, and the queue with real tasks.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Enter(usize),
    /// A running exec ends.
    End(usize),
    /// A waiting exec gives up.
    Leave(usize),
    /// A running exec gives its slot back and counts as waiting.
    Park(usize),
    /// A parked exec wants a slot again.
    Return(usize),
    Bound(u32, u32),
}

/// The expected state as plain lists in order of arrival.
#[derive(Debug)]
struct Model {
    limits: QueueLimits,
    running: Vec<usize>,
    /// Number and user, in the order in which each user's execs start.
    waiting: Vec<(u64, usize)>,
    parked: Vec<usize>,
    /// Users in round-robin order. A user that starts to wait, or whose exec was just started, goes
    /// to the end.
    rotation: Vec<usize>,
}

impl Model {
    fn has_room(&self, user: usize) -> bool {
        let own = self.running.iter().filter(|other| **other == user).count();
        self.running.len() < self.limits.max_running as usize && own < self.limits.max_running_per_user as usize
    }

    fn is_full_for(&self, user: usize) -> bool {
        let has_one = self.waiting.iter().any(|(_, other)| *other == user) || self.parked.contains(&user);
        let count = self.waiting.len() + self.parked.len();
        count >= self.limits.max_waiting as usize && (has_one || self.limits.max_waiting == 0)
    }

    fn start_waiting(&mut self) -> Vec<u64> {
        let mut started = Vec::new();
        while let Some(user) = self.rotation.iter().copied().find(|user| self.has_room(*user)) {
            let index = self.waiting.iter().position(|(_, other)| *other == user).expect("a waiting exec");
            let (number, _) = self.waiting.remove(index);
            self.running.push(user);
            started.push(number);
            self.rotation.retain(|other| *other != user);
            if self.waiting.iter().any(|(_, other)| *other == user) {
                self.rotation.push(user);
            }
        }
        started
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => (0..4_usize).prop_map(Act::Enter),
        4 => (0..8_usize).prop_map(Act::End),
        1 => (0..8_usize).prop_map(Act::Leave),
        2 => (0..8_usize).prop_map(Act::Park),
        2 => (0..8_usize).prop_map(Act::Return),
        1 => (1..5_u32, 1..4_u32).prop_map(|(running, per_user)| Act::Bound(running, per_user)),
    ];
    proptest::collection::vec(act, 0..120)
}

fn user(number: usize) -> UserId {
    format!("u{number}").parse().expect("a user")
}

fn limits(max_running: u32, max_running_per_user: u32, max_waiting: u32) -> QueueLimits {
    QueueLimits { max_running, max_running_per_user, max_waiting, max_waiting_per_user: u32::MAX }
}

fn numbers(started: Vec<(UserId, u64)>) -> Vec<u64> {
    started.into_iter().map(|(_, number)| number).collect()
}

/// Takes a slot or a position for exec `number`. `None` if the queue is full, `Some(None)` if it
/// starts.
fn enter(schedule: &mut Schedule<u64>, user: &UserId, number: u64) -> Option<Option<WaiterId>> {
    if schedule.try_start(user) {
        return Some(None);
    }
    (!schedule.is_full_for(user)).then(|| Some(schedule.enqueue(user, number, VecDeque::push_back)))
}

fn immediate(queue: &Arc<ExecQueue>, number: usize) -> Slot {
    match queue.enter(&user(number)) {
        Some(Admission::Immediate(slot)) => slot,
        Some(Admission::Queued(_)) | None => panic!("user {number} has to wait"),
    }
}

fn queued(queue: &Arc<ExecQueue>, number: usize) -> QueueTicket {
    match queue.enter(&user(number)) {
        Some(Admission::Queued(ticket)) => ticket,
        Some(Admission::Immediate(_)) | None => panic!("user {number} does not wait"),
    }
}

proptest! {
    #[test]
    fn schedule_agrees_with_the_model(acts in acts(), running in 1..5_u32, per_user in 1..4_u32, waiting in 0..6_u32) {
        let mut schedule = Schedule::new(limits(running, per_user, waiting));
        let mut model =
            Model { limits: limits(running, per_user, waiting), running: vec![], waiting: vec![], parked: vec![], rotation: vec![] };
        let mut ids = HashMap::new();
        for (number, act) in acts.into_iter().enumerate() {
            let number = number as u64;
            match act {
                Act::Enter(owner) => {
                    let entered = enter(&mut schedule, &user(owner), number);
                    if model.has_room(owner) {
                        prop_assert_eq!(entered, Some(None));
                        model.running.push(owner);
                    } else if model.is_full_for(owner) {
                        prop_assert_eq!(entered, None);
                    } else {
                        let Some(Some(id)) = entered else { return Err(TestCaseError::fail("must wait")) };
                        ids.insert(number, id);
                        model.waiting.push((number, owner));
                        if !model.rotation.contains(&owner) {
                            model.rotation.push(owner);
                        }
                    }
                }
                Act::End(index) if !model.running.is_empty() => {
                    let owner = model.running.remove(index % model.running.len());
                    prop_assert_eq!(numbers(schedule.release(&user(owner))), model.start_waiting());
                }
                Act::Leave(index) if !model.waiting.is_empty() => {
                    let (waiter, owner) = model.waiting.remove(index % model.waiting.len());
                    if model.waiting.iter().all(|(_, other)| *other != owner) {
                        model.rotation.retain(|other| *other != owner);
                    }
                    schedule.leave(&user(owner), ids[&waiter]);
                }
                Act::Park(index) if !model.running.is_empty() => {
                    let owner = model.running[index % model.running.len()];
                    let is_parked = !model.is_full_for(owner);
                    prop_assert_eq!(schedule.park(&user(owner)), is_parked);
                    if is_parked {
                        model.parked.push(owner);
                    }
                    model.running.remove(index % model.running.len());
                    prop_assert_eq!(numbers(schedule.release(&user(owner))), model.start_waiting());
                }
                Act::Return(index) if !model.parked.is_empty() => {
                    let owner = model.parked.remove(index % model.parked.len());
                    let starts = schedule.try_start(&user(owner));
                    prop_assert_eq!(starts, model.has_room(owner));
                    if starts {
                        model.running.push(owner);
                    } else {
                        ids.insert(number, schedule.enqueue(&user(owner), number, VecDeque::push_front));
                        model.waiting.insert(0, (number, owner));
                        if !model.rotation.contains(&owner) {
                            model.rotation.push(owner);
                        }
                    }
                    schedule.unpark(&user(owner));
                }
                Act::End(_) | Act::Leave(_) | Act::Park(_) | Act::Return(_) => {}
                Act::Bound(max_running, max_running_per_user) => {
                    model.limits = QueueLimits { max_running, max_running_per_user, ..model.limits };
                    prop_assert_eq!(numbers(schedule.set_limits(model.limits)), model.start_waiting());
                }
            }
            prop_assert_eq!(schedule.total_running() as usize, model.running.len());
            prop_assert_eq!(schedule.total_waiting() as usize, model.waiting.len() + model.parked.len());
            prop_assert_eq!(schedule.rotation.len(), schedule.waiting.len());
        }
    }
}

#[test]
fn users_with_waiting_execs_start_alternately() {
    let mut schedule = Schedule::new(limits(1, 1, 100));
    let (many, one) = (user(0), user(1));
    for number in 0..11 {
        assert!(enter(&mut schedule, &many, number).is_some());
    }
    assert!(enter(&mut schedule, &one, 11).is_some());
    assert_eq!(numbers(schedule.release(&many)), [1]);
    assert_eq!(numbers(schedule.release(&many)), [11]);
}

#[test]
fn full_queue_accepts_one_exec_of_each_other_user() {
    let mut schedule = Schedule::new(limits(1, 1, 3));
    let (many, one) = (user(0), user(1));
    while enter(&mut schedule, &many, 0).is_some() {}
    assert_eq!(schedule.total_waiting(), 3);
    assert!(enter(&mut schedule, &one, 1).is_some());
    assert_eq!((enter(&mut schedule, &one, 2), enter(&mut schedule, &many, 3)), (None, None));
}

#[test]
fn parked_slot_is_free_for_other_users() {
    let queue = ExecQueue::new(limits(1, 1, 8));
    let parked = immediate(&queue, 0).park().expect("the queue is empty");
    assert_eq!(queue.counts(), QueueCounts { running: 0, waiting: 1 });
    let other = immediate(&queue, 1);
    let Admission::Queued(_returned) = parked.enter() else { panic!("two execs share one slot") };
    assert_eq!(queue.counts(), QueueCounts { running: 1, waiting: 1 });
    drop(other);
    assert_eq!(queue.counts(), QueueCounts { running: 1, waiting: 0 }, "the returned exec has the slot");
}

#[test]
fn parked_execs_count_against_the_queue_limit() {
    let queue = ExecQueue::new(limits(1, 1, 2));
    let take = || immediate(&queue, 0);
    let _parked = (take().park().expect("nothing waits"), take().park().expect("one exec waits"));
    assert!(take().park().is_none(), "a user parks more execs than may wait");
    assert_eq!(queue.counts(), QueueCounts { running: 0, waiting: 2 }, "a slot that could not be parked is released");
}

#[test]
fn user_limit_rejects_while_the_queue_has_room_for_others() {
    let mut schedule = Schedule::new(QueueLimits { max_waiting_per_user: 2, ..limits(1, 1, 100) });
    let (many, one) = (user(0), user(1));
    for number in 0..3 {
        assert!(enter(&mut schedule, &many, number).is_some());
    }
    assert_eq!(enter(&mut schedule, &many, 3), None);
    assert!(enter(&mut schedule, &one, 4).is_some());
}

#[tokio::test]
async fn dropped_slot_skips_dropped_ticket() {
    let queue = ExecQueue::new(limits(1, 1, 8));
    let slot = immediate(&queue, 0);
    let (abandoned, next, last) = (queued(&queue, 1), queued(&queue, 2), queued(&queue, 3));
    drop(abandoned);
    drop(slot);
    drop(next.wait().await.expect("a slot"));
    let slot = last.wait().await.expect("a slot");
    assert_eq!(queue.counts(), QueueCounts { running: 1, waiting: 0 });
    let unread = queued(&queue, 4);
    drop(slot);
    assert_eq!(queue.counts(), QueueCounts { running: 1, waiting: 0 }, "the ticket holds the slot unread");
    drop(unread);
    assert_eq!(queue.counts(), QueueCounts::default());
}
