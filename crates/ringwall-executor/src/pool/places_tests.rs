//! Tests of the rules against a model with its own records.
//!
//! For small bounds every reachable state is visited; for larger ones events are random. After
//! every event the model must agree with the rules, and from every state all requests must be
//! served when no more arrive.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use world::*;

#[path = "places_world.rs"]
mod world;

/// Visits every reachable state and lets each come to rest; returns their number.
fn visit_all(first: World, keys: u8, kinds: u8, most: usize) -> usize {
    let mut seen = HashSet::from([first.shape()]);
    let mut waiting = vec![first];
    while let Some(world) = waiting.pop() {
        world.clone().come_to_rest();
        for event in world.events(keys, kinds, most) {
            let mut next = world.clone();
            next.happen(event);
            if seen.insert(next.shape()) {
                waiting.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn sessions_in_every_order_of_events() {
    for (max, keys, most) in [(1, 2, 3), (2, 2, 2)] {
        let states = visit_all(World::new(max, 0), keys, 0, most);
        println!("{max} places, {keys} sessions, {most} at once: {states} states");
        assert!(states > 500, "{states}");
    }
}

#[test]
fn sessions_and_spares_in_every_order_of_events() {
    let states = visit_all(World::new(2, 1), 1, 1, 1);
    println!("{states} states");
    assert!(states > 500, "{states}");
}

#[test]
fn who_is_slow_keeps_nobody_waiting() {
    let mut world = World::new(3, 1);
    let makes =
        |world: &World, kind: Kind| world.boxes.values().filter(|of| **of == (Role::Spare(kind), Life::Begun)).count();
    world.happen(Event::TakeSpare(1));
    world.happen(Event::TakeSpare(1));
    assert_eq!(makes(&world, 1), 1, "one after the other");
    world.happen(Event::TakeSpare(0));
    assert_eq!(makes(&world, 0), 1, "beside it");
    let quick = *world.boxes.keys().last().expect("a spare");
    world.happen(Event::Made(quick));
    for key in 0..2 {
        world.happen(Event::Acquire(key, OnBusy::Wait));
    }
    assert_eq!(world.boxes[&quick].1, Life::Ends, "a session does not wait for what takes long");
    world.happen(Event::Ended(quick));
    world.happen(Event::Acquire(2, OnBusy::Fail));
    assert_eq!(world.refused, 0, "and is not refused when that alone is in its way");
}

#[test]
fn quick_warm_box_is_evicted_before_slow_one() {
    let mut world = World::new(2, 1);
    for kind in [1, 0] {
        world.happen(Event::TakeSpare(kind));
        let made = *world.boxes.keys().last().expect("a spare");
        world.happen(Event::Made(made));
        world.now += Duration::from_secs(1);
    }
    let quick = *world.boxes.keys().last().expect("a spare");
    world.happen(Event::Acquire(0, OnBusy::Wait));
    assert_eq!(world.boxes[&quick], (Role::Spare(0), Life::Ends), "although the other has waited longer");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn many_at_random(max in 1..5_u32, min in 0..4_u32, choices in proptest::collection::vec(any::<prop::sample::Index>(), 0..150)) {
        let mut world = World::new(max, min);
        for choice in choices {
            let events = world.events(5, 2, 8);
            // A stop ends a run, so only one in ten is applied.
            let event = events[choice.index(events.len())];
            if event != Event::Stop || choice.index(10) == 0 {
                world.happen(event);
            }
        }
        world.come_to_rest();
    }
}

#[test]
fn the_longest_idle_session_makes_room_and_spares_before_it() {
    let mut world = World::new(3, 1);
    world.happen(Event::TakeSpare(0));
    world.happen(Event::Made(MemberId(1)));
    let use_once = |world: &mut World, key: Key| {
        world.happen(Event::Acquire(key, OnBusy::Fail));
        let made = world.wishes.values().find_map(|(_, wish)| match wish {
            Wish::Makes(id) => Some(*id),
            _ => None,
        });
        let made = made.expect("a box to make");
        world.happen(Event::Made(made));
        let ticket = *world.wishes.keys().next().expect("a wish");
        world.happen(Event::Release(ticket));
        world.now += Duration::from_secs(1);
        made
    };
    let first = use_once(&mut world, 0);
    use_once(&mut world, 1);
    world.happen(Event::Acquire(2, OnBusy::Fail));
    assert_eq!(world.boxes.get(&MemberId(1)), Some(&(Role::Spare(0), Life::Ends)));
    world.happen(Event::Ended(MemberId(1)));
    let third = *world.wishes.keys().next().expect("a wish");
    world.happen(Event::Cancel(third));
    let abandoned = *world.boxes.keys().last().expect("a box");
    world.happen(Event::Made(abandoned));
    world.happen(Event::Ended(abandoned));
    assert_eq!(world.rule.figures().warming, 1, "there is room for a spare again");
    world.happen(Event::Failed(*world.boxes.keys().last().expect("a spare")));
    use_once(&mut world, 2);
    world.happen(Event::Acquire(3, OnBusy::Fail));
    assert_eq!(world.boxes[&first].1, Life::Ends, "the session that was idle for longest");
}

#[test]
fn a_box_is_replaced_after_its_last_use() {
    let mut world = World::new(1, 0);
    world.happen(Event::Acquire(0, OnBusy::Wait));
    world.happen(Event::Made(MemberId(1)));
    world.happen(Event::Release(Ticket(1)));
    world.happen(Event::Acquire(0, OnBusy::Fail));
    world.happen(Event::Take(Ticket(2)));
    world.happen(Event::Acquire(0, OnBusy::Wait));
    world.happen(Event::Release(Ticket(2)));
    assert_eq!(world.boxes[&MemberId(1)].1, Life::Ends);
    world.happen(Event::Ended(MemberId(1)));
    assert_eq!(world.wishes[&Ticket(3)].1, Wish::Makes(MemberId(2)));
    let figures = world.rule.figures();
    assert_eq!((figures.hits, figures.misses), (1, 2));
}

#[test]
fn kept_kind_is_made_at_start_and_refilled() {
    let mut world = World::new(4, 2);
    let make_all = |world: &mut World| {
        for _ in 0..20 {
            let begun = world.boxes.iter().find(|(_, (_, life))| *life != Life::Up).map(|(id, (_, life))| (*id, *life));
            match begun {
                Some((id, Life::Ends)) => world.happen(Event::Ended(id)),
                Some((id, _)) => world.happen(Event::Made(id)),
                None => break,
            }
        }
        world.rule.figures().spares.idle
    };
    world.happen(Event::Keep(Some(0)));
    assert_eq!(make_all(&mut world), 2);
    (0..9).for_each(|_| world.happen(Event::Wait));
    assert_eq!(make_all(&mut world), 2, "it is not forgotten");
    (0..2).for_each(|_| world.happen(Event::TakeSpare(0)));
    (0..3).for_each(|_| world.happen(Event::TakeSpare(0)));
    let figures = world.rule.figures();
    assert_eq!((figures.hits, figures.misses), (2, 3), "the first two were warm");
    // One after another, with pauses.
    for _ in 0..4 {
        world.now += IDLE / 2;
        let steps = world.rule.settle(world.now);
        world.follow(steps);
        make_all(&mut world);
    }
    assert_eq!(world.rule.figures().spares.idle, 4, "more while that was too few, and no more than there are places");
    (0..4).for_each(|_| world.happen(Event::Wait));
    assert_eq!(make_all(&mut world), 2, "and as many as at first when it is quiet");
    world.happen(Event::Keep(None));
    (0..4).for_each(|_| world.happen(Event::Wait));
    assert_eq!(make_all(&mut world), 0);
}
