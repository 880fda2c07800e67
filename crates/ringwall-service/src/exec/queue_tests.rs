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
    bounds: Bounds,
    running: Vec<(Ticket, usize)>,
    waiting: Vec<(Ticket, usize)>,
    parked: Vec<usize>,
    /// Users in round-robin order. A user that starts to wait, or whose exec was just started, goes
    /// to the end.
    turns: Vec<usize>,
}

impl Model {
    fn has_room(&self, user: usize) -> bool {
        let own = self.running.iter().filter(|(_, other)| *other == user).count();
        self.running.len() < self.bounds.running as usize && own < self.bounds.running_per_user as usize
    }

    fn is_full_for(&self, user: usize) -> bool {
        let has_one = self.waiting.iter().any(|(_, other)| *other == user) || self.parked.contains(&user);
        let count = self.waiting.len() + self.parked.len();
        count >= self.bounds.waiting as usize && (has_one || self.bounds.waiting == 0)
    }

    fn call(&mut self) -> Vec<Ticket> {
        let mut called = Vec::new();
        while let Some(user) = self.turns.iter().copied().find(|user| self.has_room(*user)) {
            let index = self.waiting.iter().position(|(_, other)| *other == user).expect("somebody waits");
            let (ticket, _) = self.waiting.remove(index);
            self.running.push((ticket, user));
            called.push(ticket);
            self.turns.retain(|other| *other != user);
            if self.waiting.iter().any(|(_, other)| *other == user) {
                self.turns.push(user);
            }
        }
        called
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

proptest! {
    #[test]
    fn the_line_does_what_the_model_does(acts in acts(), running in 1..5_u32, per_user in 1..4_u32, waiting in 0..6_u32) {
        let bounds = Bounds { running, running_per_user: per_user, waiting, waiting_per_user: u32::MAX };
        let mut line = Line::new(bounds);
        let mut model = Model { bounds, running: vec![], waiting: vec![], parked: vec![], turns: vec![] };
        let mut at_once = Ticket::MAX;
        for act in acts {
            match act {
                Act::Enter(number) => {
                    let entered = line.enter(&user(number));
                    if model.has_room(number) {
                        prop_assert_eq!(entered, Entered::Running);
                        at_once -= 1;
                        model.running.push((at_once, number));
                    } else if model.is_full_for(number) {
                        prop_assert_eq!(entered, Entered::Full);
                    } else {
                        let Entered::Waiting(ticket) = entered else { return Err(TestCaseError::fail("must wait")) };
                        model.waiting.push((ticket, number));
                        if !model.turns.contains(&number) {
                            model.turns.push(number);
                        }
                    }
                }
                Act::End(index) if !model.running.is_empty() => {
                    let (_, number) = model.running.remove(index % model.running.len());
                    prop_assert_eq!(line.release(&user(number)), model.call());
                }
                Act::Leave(index) if !model.waiting.is_empty() => {
                    let (ticket, number) = model.waiting.remove(index % model.waiting.len());
                    if model.waiting.iter().all(|(_, other)| *other != number) {
                        model.turns.retain(|other| *other != number);
                    }
                    line.leave(&user(number), ticket);
                }
                Act::Park(index) if !model.running.is_empty() => {
                    let index = index % model.running.len();
                    let number = model.running[index].1;
                    let is_parked = !model.is_full_for(number);
                    prop_assert_eq!(line.park(&user(number)), is_parked);
                    if is_parked {
                        model.parked.push(number);
                    }
                    model.running.remove(index);
                    prop_assert_eq!(line.release(&user(number)), model.call());
                }
                Act::Return(index) if !model.parked.is_empty() => {
                    let number = model.parked.remove(index % model.parked.len());
                    let entered = line.enter_again(&user(number));
                    line.unpark(&user(number));
                    if model.has_room(number) {
                        prop_assert_eq!(entered, Entered::Running);
                        at_once -= 1;
                        model.running.push((at_once, number));
                    } else {
                        let Entered::Waiting(ticket) = entered else { return Err(TestCaseError::fail("must wait")) };
                        model.waiting.insert(0, (ticket, number));
                        if !model.turns.contains(&number) {
                            model.turns.push(number);
                        }
                    }
                }
                Act::End(_) | Act::Leave(_) | Act::Park(_) | Act::Return(_) => {}
                Act::Bound(running, running_per_user) => {
                    let bounds = Bounds { running, running_per_user, ..model.bounds };
                    model.bounds = bounds;
                    prop_assert_eq!(line.set_bounds(bounds), model.call());
                }
            }
            prop_assert_eq!(line.running() as usize, model.running.len());
            prop_assert_eq!(line.waiting(), model.waiting.len() + model.parked.len());
            prop_assert_eq!(line.rotation.len(), line.waiting.len());
        }
    }
}

#[test]
fn one_user_with_many_does_not_keep_another_waiting() {
    let mut line = Line::new(Bounds { running: 1, running_per_user: 1, waiting: 100, waiting_per_user: u32::MAX });
    let (many, one) = (user(0), user(1));
    assert_eq!(line.enter(&many), Entered::Running);
    let own: Vec<_> = (0..10).map(|_| line.enter(&many)).collect();
    let Entered::Waiting(late) = line.enter(&one) else { panic!("somebody runs") };
    let Entered::Waiting(first) = own[0] else { panic!("somebody runs") };
    assert_eq!(line.release(&many), [first]);
    assert_eq!(line.release(&many), [late]);
}

#[test]
fn one_user_with_many_does_not_take_all_the_room() {
    let mut line = Line::new(Bounds { running: 1, running_per_user: 1, waiting: 3, waiting_per_user: u32::MAX });
    let (many, one) = (user(0), user(1));
    assert_eq!(line.enter(&many), Entered::Running);
    while line.enter(&many) != Entered::Full {}
    assert_eq!(line.waiting(), 3);
    assert!(matches!(line.enter(&one), Entered::Waiting(_)), "somebody else takes all the room");
    assert_eq!((line.enter(&one), line.enter(&many)), (Entered::Full, Entered::Full));
}

#[test]
fn parked_slot_is_free_for_other_users() {
    let turns = Turns::new(Bounds { running: 1, running_per_user: 1, waiting: 8, waiting_per_user: u32::MAX });
    let Some(Admission::Now(slot)) = turns.enter(&user(0)) else { panic!("the only slot is taken") };
    let parked = slot.park().expect("the queue is empty");
    assert_eq!(turns.counts(), (0, 1));
    let Some(Admission::Now(other)) = turns.enter(&user(1)) else { panic!("a parked exec keeps its slot") };
    let Some(Admission::Later(_returned)) = parked.enter() else { panic!("two execs share one slot") };
    assert_eq!(turns.counts(), (1, 1));
    drop(other);
    assert_eq!(turns.counts(), (1, 0), "the returned exec has the slot");
}

#[test]
fn parked_execs_count_against_the_queue_limit() {
    let turns = Turns::new(Bounds { running: 1, running_per_user: 1, waiting: 2, waiting_per_user: u32::MAX });
    let take = || match turns.enter(&user(0)) {
        Some(Admission::Now(slot)) => slot,
        Some(Admission::Later(_)) | None => panic!("the slot is taken"),
    };
    let _parked = (take().park().expect("nothing waits"), take().park().expect("one exec waits"));
    assert!(take().park().is_none(), "a user parks more execs than may wait");
    assert_eq!(turns.counts(), (0, 2), "a slot that could not be parked is given back");
}

#[test]
fn waiting_per_user_is_bounded_while_there_is_room_for_others() {
    let mut line = Line::new(Bounds { running: 1, running_per_user: 1, waiting: 100, waiting_per_user: 2 });
    let (many, one) = (user(0), user(1));
    assert_eq!(line.enter(&many), Entered::Running);
    assert!(matches!(line.enter(&many), Entered::Waiting(_)) && matches!(line.enter(&many), Entered::Waiting(_)));
    assert_eq!(line.enter(&many), Entered::Full);
    assert!(matches!(line.enter(&one), Entered::Waiting(_)));
}

#[tokio::test]
async fn slot_skips_cancelled_ticket() {
    let turns = Turns::new(Bounds { running: 1, running_per_user: 1, waiting: 8, waiting_per_user: u32::MAX });
    let Some(Admission::Now(slot)) = turns.enter(&user(0)) else { panic!("it is free") };
    let Some(Admission::Later(given_up)) = turns.enter(&user(1)) else { panic!("it is taken") };
    let Some(Admission::Later(mut called)) = turns.enter(&user(2)) else { panic!("it is taken") };
    let Some(Admission::Later(mut last)) = turns.enter(&user(3)) else { panic!("it is taken") };
    drop(given_up);
    drop(slot);
    // Drops the slot at once, so it passes to the last waiting exec.
    let slot = called.turn().await.expect("a turn");
    drop(slot);
    let _slot = last.turn().await.expect("a turn");
    drop(called);
    assert_eq!(turns.counts(), (1, 0));
    let Some(Admission::Later(unheard)) = turns.enter(&user(4)) else { panic!("it is taken") };
    drop(_slot);
    assert_eq!(turns.counts(), (1, 0));
    drop(unheard);
    assert_eq!(turns.counts(), (0, 0));
}
