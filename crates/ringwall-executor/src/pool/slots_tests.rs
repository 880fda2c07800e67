//! Tests of the rules against a model with its own records.
//!
//! For small bounds every reachable state is visited; for larger ones events are random. After
//! every event the model must agree with the rules, and from every state all requests must be
//! served when no more arrive.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use model::*;

#[path = "slots_model.rs"]
mod model;

/// Visits every reachable state and lets each come to rest; returns their number.
fn visit_all(first: Model, keys: u8, kinds: u8, most: usize) -> usize {
    let mut seen = HashSet::from([first.shape()]);
    let mut waiting = vec![first];
    while let Some(model) = waiting.pop() {
        model.clone().drain();
        for event in model.events(keys, kinds, most) {
            let mut next = model.clone();
            next.apply(event);
            if seen.insert(next.shape()) {
                waiting.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn rules_hold_for_sessions_in_every_order_of_events() {
    for (max, keys, most) in [(1, 2, 3), (2, 2, 2)] {
        let states = visit_all(Model::new(max, 0), keys, 0, most);
        println!("{max} slots, {keys} sessions, {most} at once: {states} states");
        assert!(states > 500, "{states}");
    }
}

#[test]
fn rules_hold_with_warm_boxes_in_every_order_of_events() {
    let states = visit_all(Model::new(2, 1), 1, 1, 1);
    println!("{states} states");
    assert!(states > 500, "{states}");
}

#[test]
fn warm_boxes_of_two_kinds_are_made_one_after_another() {
    let mut model = Model::new(3, 1);
    for kind in [1, 0] {
        model.apply(Event::TakeWarmBox(kind));
        assert_eq!(model.boxes[&MemberId(1)], (Role::WarmBox(1), Life::Begun));
        assert_eq!(model.boxes.len(), 1);
    }
    model.apply(Event::Made(MemberId(1)));
    assert_eq!(model.boxes[&MemberId(2)], (Role::WarmBox(0), Life::Begun));
}

#[test]
fn session_without_slot_evicts_oldest_warm_box() {
    let mut model = Model::new(2, 1);
    for kind in [1, 0] {
        model.apply(Event::TakeWarmBox(kind));
        let made = *model.boxes.keys().last().expect("a warm box");
        model.apply(Event::Made(made));
        model.now += Duration::from_secs(1);
    }
    model.apply(Event::Acquire(0, OnBusy::Wait));
    let ending = model.boxes.values().filter(|(_, life)| *life == Life::Ends);
    assert_eq!(ending.collect::<Vec<_>>(), [&(Role::WarmBox(1), Life::Ends)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn rules_hold_for_random_events(max in 1..5_u32, min in 0..4_u32, choices in proptest::collection::vec(any::<prop::sample::Index>(), 0..150)) {
        let mut model = Model::new(max, min);
        for choice in choices {
            let events = model.events(5, 2, 8);
            // A stop ends a run, so only one in ten is applied.
            let event = events[choice.index(events.len())];
            if event != Event::Stop || choice.index(10) == 0 {
                model.apply(event);
            }
        }
        model.drain();
    }
}

#[test]
fn full_pool_evicts_warm_box_before_longest_idle_session() {
    let mut model = Model::new(3, 1);
    model.apply(Event::TakeWarmBox(0));
    model.apply(Event::Made(MemberId(1)));
    let use_once = |model: &mut Model, key: Key| {
        model.apply(Event::Acquire(key, OnBusy::Fail));
        let made = model.requests.values().find_map(|(_, state)| match state {
            Request::Makes(id) => Some(*id),
            _ => None,
        });
        let made = made.expect("a box to make");
        model.apply(Event::Made(made));
        let ticket = *model.requests.keys().next().expect("a request");
        model.apply(Event::Release(ticket));
        model.now += Duration::from_secs(1);
        made
    };
    let first = use_once(&mut model, 0);
    use_once(&mut model, 1);
    model.apply(Event::Acquire(2, OnBusy::Fail));
    assert_eq!(model.boxes.get(&MemberId(1)), Some(&(Role::WarmBox(0), Life::Ends)));
    model.apply(Event::Ended(MemberId(1)));
    let third = *model.requests.keys().next().expect("a request");
    model.apply(Event::Cancel(third));
    let abandoned = *model.boxes.keys().last().expect("a box");
    model.apply(Event::Made(abandoned));
    model.apply(Event::Ended(abandoned));
    assert_eq!(model.rule.figures().warming, 1, "a warm box is made in the free slot");
    model.apply(Event::Failed(*model.boxes.keys().last().expect("a warm box")));
    use_once(&mut model, 2);
    model.apply(Event::Acquire(3, OnBusy::Fail));
    assert_eq!(model.boxes[&first].1, Life::Ends, "the box of the session that was idle longest");
}

#[test]
fn worn_box_is_replaced() {
    let mut model = Model::new(1, 0);
    model.apply(Event::Acquire(0, OnBusy::Wait));
    model.apply(Event::Made(MemberId(1)));
    model.apply(Event::Release(Ticket(1)));
    model.apply(Event::Acquire(0, OnBusy::Fail));
    model.apply(Event::Take(Ticket(2)));
    model.apply(Event::Acquire(0, OnBusy::Wait));
    model.apply(Event::Release(Ticket(2)));
    assert_eq!(model.boxes[&MemberId(1)].1, Life::Ends);
    model.apply(Event::Ended(MemberId(1)));
    assert_eq!(model.requests[&Ticket(3)].1, Request::Makes(MemberId(2)));
    let figures = model.rule.figures();
    assert_eq!((figures.hits, figures.misses), (1, 2));
}

#[test]
fn kept_kind_is_made_at_start_and_refilled() {
    let mut model = Model::new(4, 2);
    let make_all = |model: &mut Model| {
        for _ in 0..20 {
            let begun = model.boxes.iter().find(|(_, (_, life))| *life != Life::Up).map(|(id, (_, life))| (*id, *life));
            match begun {
                Some((id, Life::Ends)) => model.apply(Event::Ended(id)),
                Some((id, _)) => model.apply(Event::Made(id)),
                None => break,
            }
        }
        model.rule.figures().warm_boxes.idle
    };
    model.apply(Event::Keep(Some(0)));
    assert_eq!(make_all(&mut model), 2);
    (0..9).for_each(|_| model.apply(Event::Wait));
    assert_eq!(make_all(&mut model), 2, "it is not forgotten");
    (0..2).for_each(|_| model.apply(Event::TakeWarmBox(0)));
    (0..3).for_each(|_| model.apply(Event::TakeWarmBox(0)));
    let figures = model.rule.figures();
    assert_eq!((figures.hits, figures.misses), (2, 3), "the first two were warm");
    // One after another, with pauses.
    for _ in 0..4 {
        model.now += IDLE / 2;
        let steps = model.rule.rebalance(model.now);
        model.follow(steps);
        make_all(&mut model);
    }
    assert_eq!(model.rule.figures().warm_boxes.idle, 4, "more after misses, up to the maximum");
    (0..4).for_each(|_| model.apply(Event::Wait));
    assert_eq!(make_all(&mut model), 2, "the minimum again after the idle time");
    model.apply(Event::Keep(None));
    (0..4).for_each(|_| model.apply(Event::Wait));
    assert_eq!(make_all(&mut model), 0);
}
