//! A model of boxes and requests beside the rules: it performs their steps and checks after each
//! event that no box is assigned twice or lost, and that no request waits for a free box.

use std::collections::{BTreeMap, BTreeSet};

use crate::pool::slots::*;

pub(super) const IDLE: Duration = Duration::from_secs(10);
pub(super) type Key = u8;
pub(super) type Kind = u8;

impl PoolKind for u8 {
    /// The first warm box is made at once, each further one after a pause.
    fn pause(&self, waiting: usize) -> Duration {
        if waiting == 0 { Duration::ZERO } else { IDLE / 2 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Acquire(Key, OnBusy),
    Take(Ticket),
    /// Cancels a request; a box that it makes is still made.
    Cancel(Ticket),
    /// Cancels a request before it starts to make its box.
    CancelUnbegun(Ticket, MemberId),
    Release(Ticket),
    Hold(Ticket),
    LetGo(MemberId),
    Made(MemberId),
    Failed(MemberId),
    Die(MemberId),
    Ended(MemberId),
    Dismiss(Key),
    TakeWarmBox(Kind),
    /// Sets the minimum of warm boxes.
    Least(u32),
    /// Keeps a kind without demand.
    Keep(Option<Kind>),
    Wait,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    Waits,
    Called(MemberId),
    Makes(MemberId),
    Has(MemberId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Life {
    Begun,
    Up,
    Ends,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) rule: Slots<Key, Kind>,
    pub(super) now: Moment,
    pub(super) requests: BTreeMap<Ticket, (Key, Request)>,
    pub(super) boxes: BTreeMap<MemberId, (Role<Key, Kind>, Life)>,
    pub(super) holds: BTreeSet<MemberId>,
    pub(super) asked: u64,
    pub(super) refused: u64,
    pub(super) is_stopped: bool,
}

impl Model {
    pub(super) fn new(max: u32, min: u32) -> Self {
        let bounds = Bounds {
            max_instances: max,
            min_instances: min,
            idle_timeout: IDLE,
            max_use_count: 2,
            acquire_timeout: IDLE,
        };
        Self {
            rule: Slots::new(bounds),
            now: Duration::ZERO,
            requests: BTreeMap::new(),
            boxes: BTreeMap::new(),
            holds: BTreeSet::new(),
            asked: 0,
            refused: 0,
            is_stopped: false,
        }
    }

    /// All possible events.
    pub(super) fn events(&self, keys: u8, kinds: u8, most: usize) -> Vec<Event> {
        let mut events = vec![Event::Wait];
        if self.requests.len() < most && !self.is_stopped {
            events.extend((0..keys).flat_map(|key| [OnBusy::Wait, OnBusy::Fail].map(|how| Event::Acquire(key, how))));
        }
        if !self.is_stopped {
            events.extend((0..kinds).map(Event::TakeWarmBox));
        }
        for (ticket, (_, demand)) in &self.requests {
            match demand {
                Request::Waits => events.push(Event::Cancel(*ticket)),
                Request::Called(_) => events.extend([Event::Take(*ticket), Event::Cancel(*ticket)]),
                Request::Makes(id) => events.extend([Event::Cancel(*ticket), Event::CancelUnbegun(*ticket, *id)]),
                Request::Has(id) => {
                    events.push(Event::Release(*ticket));
                    if !self.holds.contains(id) {
                        events.push(Event::Hold(*ticket));
                    }
                }
            }
        }
        for (id, (role, life)) in &self.boxes {
            match life {
                Life::Begun => events.extend([Event::Made(*id), Event::Failed(*id)]),
                Life::Up => events.push(Event::Die(*id)),
                Life::Ends => events.push(Event::Ended(*id)),
            }
            if let Role::Session(key) = role {
                events.push(Event::Dismiss(*key));
            }
        }
        events.extend(self.holds.iter().map(|id| Event::LetGo(*id)));
        if kinds > 0 {
            events.extend([0, 1].map(Event::Least));
            events.extend([None, Some(0)].map(Event::Keep));
        }
        if !self.is_stopped {
            events.push(Event::Stop);
        }
        events
    }

    pub(super) fn apply(&mut self, event: Event) {
        let now = self.now;
        let steps = match event {
            Event::Acquire(key, how) => {
                self.asked += 1;
                let (ticket, steps) = self.rule.acquire(&key, how, now);
                self.requests.insert(ticket, (key, Request::Waits));
                steps
            }
            Event::Take(ticket) => {
                let demand = &mut self.requests.get_mut(&ticket).expect("a request").1;
                let Request::Called(id) = *demand else { panic!("{demand:?} is taken") };
                assert!(self.rule.take(ticket, id), "a living box that was offered can be taken");
                *demand = Request::Has(id);
                Vec::new()
            }
            Event::Cancel(ticket) => {
                self.requests.remove(&ticket);
                self.rule.cancel(ticket, now)
            }
            Event::CancelUnbegun(ticket, id) => {
                self.requests.remove(&ticket);
                self.boxes.remove(&id);
                let mut steps = self.rule.cancel(ticket, now);
                steps.extend(self.rule.failed(id, now));
                steps
            }
            Event::Release(ticket) => {
                let Some((_, Request::Has(id))) = self.requests.remove(&ticket) else { panic!("has none") };
                self.rule.release(ticket, id, now)
            }
            Event::Hold(ticket) => {
                let Some((_, Request::Has(id))) = self.requests.get(&ticket) else { panic!("has none") };
                let is_up = self.boxes.get(id).is_some_and(|(_, life)| *life == Life::Up);
                assert_eq!(self.rule.hold(*id), is_up);
                if is_up {
                    self.holds.insert(*id);
                }
                Vec::new()
            }
            Event::LetGo(id) => {
                self.holds.remove(&id);
                self.rule.release_hold(id, now)
            }
            Event::Made(id) => self.make(id),
            Event::Failed(id) => {
                self.boxes.remove(&id);
                self.requests.retain(|_, (_, demand)| *demand != Request::Makes(id));
                self.rule.failed(id, now)
            }
            Event::Die(id) => {
                self.cancel_unbegun(id);
                self.rule.died(id, now)
            }
            Event::Dismiss(key) => {
                let own: Vec<_> = self.boxes.iter().filter(|(_, (role, _))| *role == Role::Session(key)).collect();
                let [(id, _)] = own[..] else { panic!("a session has {own:?}") };
                let id = *id;
                self.cancel_unbegun(id);
                self.rule.dismiss(&key, now)
            }
            Event::Ended(id) => {
                self.boxes.remove(&id);
                self.holds.remove(&id);
                self.rule.ended(id, now)
            }
            Event::TakeWarmBox(kind) => {
                let are_made = self.rule.bounds.min_instances > 0;
                self.asked += u64::from(are_made);
                let there = self.boxes.values().filter(|of| **of == (Role::WarmBox(kind), Life::Up)).count();
                let (taken, steps) = self.rule.take_warm_box(&kind, |_| true, now);
                assert_eq!(taken.is_some(), there > 0 && are_made, "a ready warm box is taken");
                if let Some(id) = taken {
                    assert_eq!(
                        self.boxes.remove(&id),
                        Some((Role::WarmBox(kind), Life::Up)),
                        "a warm box that is ready"
                    );
                }
                steps
            }
            Event::Least(min_instances) => self.rule.set_bounds(Bounds { min_instances, ..self.rule.bounds }, now),
            Event::Keep(kind) => self.rule.keep(kind, now),
            Event::Wait => {
                self.now += IDLE / 2;
                self.rule.tick(self.now)
            }
            Event::Stop => {
                self.is_stopped = true;
                self.rule.stop(now)
            }
        };
        self.follow(steps);
        self.check();
    }

    pub(super) fn make(&mut self, id: MemberId) -> Vec<Step<Kind>> {
        let (role, life) = self.boxes.get_mut(&id).expect("a box");
        *life = Life::Up;
        let role = role.clone();
        let steps = self.rule.made(id, self.now);
        let maker =
            self.requests.iter().find(|(_, (_, demand))| *demand == Request::Makes(id)).map(|(ticket, _)| *ticket);
        if let (Role::Session(_), Some(maker)) = (role, maker) {
            if self.rule.has(maker, id) {
                self.requests.get_mut(&maker).expect("a request").1 = Request::Has(id);
            } else {
                // The box was dismissed or the pool stops: the request that made it ends.
                self.requests.remove(&maker);
            }
        }
        steps
    }

    /// A request that was assigned a dying box waits again; one that uses it keeps it until
    /// release.
    pub(super) fn cancel_unbegun(&mut self, id: MemberId) {
        for (_, demand) in self.requests.values_mut() {
            if *demand == Request::Called(id) {
                *demand = Request::Waits;
            }
        }
    }

    pub(super) fn follow(&mut self, steps: Vec<Step<Kind>>) {
        for step in steps {
            match step {
                Step::Serve(ticket, Turn::Busy | Turn::Stopped) => {
                    self.requests.remove(&ticket).expect("only waiting requests are refused");
                    self.refused += 1;
                }
                Step::Serve(ticket, Turn::Have(id)) => {
                    let key = self.serve(ticket, Request::Called(id));
                    assert_eq!(self.boxes.get(&id), Some(&(Role::Session(key), Life::Up)));
                }
                Step::Serve(ticket, Turn::Make(id)) => {
                    let key = self.serve(ticket, Request::Makes(id));
                    let is_first = self.boxes.insert(id, (Role::Session(key), Life::Begun)).is_none();
                    assert!(is_first, "{id:?} is made twice");
                }
                Step::MakeWarmBox(id, kind) => {
                    let is_first = self.boxes.insert(id, (Role::WarmBox(kind), Life::Begun)).is_none();
                    assert!(is_first, "{id:?} is made twice");
                }
                Step::End(id) => {
                    let life = &mut self.boxes.get_mut(&id).expect("a box").1;
                    assert_eq!(*life, Life::Up, "only what is up is ended");
                    *life = Life::Ends;
                }
            }
        }
    }

    /// Requests for one session are served in order.
    pub(super) fn serve(&mut self, ticket: Ticket, turn: Request) -> Key {
        let key = self.requests.get(&ticket).expect("a known request").0;
        let first =
            self.requests.iter().find(|(_, demand)| **demand == (key, Request::Waits)).map(|(ticket, _)| *ticket);
        assert_eq!(first, Some(ticket), "an older request waits");
        self.requests.insert(ticket, (key, turn));
        key
    }

    pub(super) fn check(&self) {
        let figures = self.rule.figures();
        assert_eq!(figures.total, figures.busy + figures.idle + figures.warming);
        assert!(figures.total <= figures.max, "{figures:?}");
        let counted: BTreeSet<MemberId> = self.rule.members.keys().copied().collect();
        let known: BTreeSet<MemberId> = self.boxes.keys().copied().collect();
        assert_eq!(known, counted, "every box has one slot, and every slot its box");
        let begun = self.boxes.values().filter(|(_, life)| *life == Life::Begun).count();
        assert_eq!(figures.warming as usize, begun);
        self.check_warm_boxes(figures);
        if !self.is_stopped {
            assert_eq!(figures.hits + figures.misses + self.refused, self.asked);
        }
        for key in self.rule.sessions.keys() {
            let own = self.boxes.values().filter(|(role, _)| *role == Role::Session(*key)).count();
            assert_eq!(own, 1, "a session has one box");
        }
        let mut users = BTreeMap::<MemberId, usize>::new();
        for (key, demand) in self.requests.values() {
            let (Request::Called(id) | Request::Has(id) | Request::Makes(id)) = demand else { continue };
            let of = self.boxes.get(id);
            // A request may still hold a box that has died and is gone.
            if matches!(of, Some((_, Life::Begun | Life::Up))) {
                *users.entry(*id).or_default() += 1;
            }
            assert!(of.is_none_or(|(role, _)| *role == Role::Session(*key)), "a box of another session");
        }
        assert!(users.values().all(|users| *users == 1), "two requests have one box");
        self.check_waiters(figures);
    }

    /// No unwanted warm box is made or stays, and none takes a slot that a request waits for.
    fn check_warm_boxes(&self, figures: Figures) {
        assert!(figures.warm_boxes.warming <= 1, "warm boxes are made one after another");
        let is_warm = |role: &Role<Key, Kind>| matches!(role, Role::WarmBox(_));
        let of_life =
            |wanted: Life| self.boxes.values().filter(|(role, life)| is_warm(role) && *life == wanted).count();
        assert_eq!(figures.warm_boxes.idle as usize, of_life(Life::Up));
        if self.is_stopped {
            assert_eq!(figures.warm_boxes.idle, 0);
            return;
        }
        for kind in self.rule.members.values().filter_map(|member| match member.role {
            Role::WarmBox(kind) => Some(kind),
            Role::Session(_) => None,
        }) {
            let up = self.boxes.values().filter(|of| **of == (Role::WarmBox(kind), Life::Up)).count();
            assert!(up <= self.rule.demand.wanted(&kind) as usize, "more than are wanted");
        }
        let waits = |(key, demand): &(Key, Request)| *demand == Request::Waits && !self.rule.sessions.contains_key(key);
        let waiting: BTreeSet<Key> = self.requests.values().filter(|of| waits(of)).map(|(key, _)| *key).collect();
        let ending = self.boxes.values().filter(|(_, life)| *life == Life::Ends).count();
        if waiting.len() > ending + figures.warm_boxes.warming as usize {
            assert_eq!(figures.warm_boxes.idle, 0, "a session waits for a slot that a warm box has");
        }
    }

    pub(super) fn check_waiters(&self, figures: Figures) {
        let ending = self.boxes.values().filter(|(_, life)| *life == Life::Ends).count();
        let mut without = BTreeSet::new();
        for (key, demand) in self.requests.values() {
            if *demand != Request::Waits {
                continue;
            }
            match self.rule.sessions.get(key).map(|id| (id, &self.boxes[id].1)) {
                Some((id, Life::Up)) => {
                    let is_used = self
                        .requests
                        .values()
                        .any(|(_, demand)| *demand == Request::Called(*id) || *demand == Request::Has(*id));
                    assert!(is_used, "a request waits for an idle box");
                }
                Some((_, Life::Begun)) => {}
                Some((_, Life::Ends)) | None => drop(without.insert(*key)),
            }
        }
        let lacking = without.len().saturating_sub(ending + figures.warm_boxes.warming as usize);
        if lacking > 0 {
            assert_eq!(figures.total, figures.max, "a request waits for a free slot");
            assert_eq!(figures.idle, 0, "a request waits although a box could be evicted");
        }
    }

    /// Without new requests every request is served, and a stop leaves nothing.
    pub(super) fn drain(mut self) {
        for _ in 0..200 {
            let next = self
                .events(0, 0, 0)
                .into_iter()
                .find(|event| matches!(event, Event::Take(_) | Event::Release(_) | Event::Made(_) | Event::Ended(_)));
            let next = next.or_else(|| self.holds.first().map(|id| Event::LetGo(*id)));
            match next {
                Some(event) => self.apply(event),
                None if !self.is_stopped => {
                    assert!(self.requests.is_empty(), "a request was never served: {self:?}");
                    assert!(self.rule.next_to_make(self.now).is_none_or(|(moment, _)| moment > self.now));
                    assert!(
                        self.rule.next_tick(self.now).is_none_or(|moment| moment > self.now),
                        "the timer is due at once again"
                    );
                    self.apply(Event::Stop);
                }
                None => break,
            }
        }
        assert!(
            self.requests.is_empty() && self.boxes.is_empty() && self.rule.is_empty(),
            "something is left: {self:?}"
        );
    }

    /// The state without counters: ids by their order, times by their age.
    pub(super) fn shape(&self) -> String {
        let ids: Vec<MemberId> = self.rule.members.keys().copied().collect();
        let id = |id: MemberId| ids.iter().position(|other| *other == id);
        let tickets: BTreeSet<Ticket> = self.requests.keys().copied().collect();
        let ticket = |ticket: Ticket| tickets.iter().position(|other| *other == ticket);
        let members: Vec<_> = self
            .rule
            .members
            .values()
            .map(|member| {
                let state = match member.state {
                    State::Warming { by } => (0, by.and_then(ticket), 0),
                    State::Idle { since } => (1, None, (self.now - since).min(IDLE).as_secs()),
                    State::Acquiring { by } => (2, ticket(by), 0),
                    State::Busy { by } => (3, ticket(by), 0),
                    State::Ending => (4, None, 0),
                };
                (member.role.clone(), state, member.uses.min(2), member.holds)
            })
            .collect();
        let queues: Vec<_> = self
            .rule
            .queues
            .iter()
            .map(|(key, line)| (*key, line.iter().map(|each| ticket(*each)).collect::<Vec<_>>()))
            .collect();
        let requests: Vec<_> = self
            .requests
            .values()
            .map(|(key, demand)| {
                let of = match demand {
                    Request::Waits => (0, None),
                    Request::Called(each) => (1, id(*each)),
                    Request::Makes(each) => (2, id(*each)),
                    Request::Has(each) => (3, id(*each)),
                };
                (*key, of)
            })
            .collect();
        let boxes: Vec<_> = self.boxes.iter().map(|(each, (_, life))| (id(*each), *life)).collect();
        let holds: Vec<_> = self.holds.iter().map(|each| id(*each)).collect();
        let ago = |moment: Moment| self.now.saturating_sub(moment).min(IDLE).as_secs();
        let demand = &self.rule.demand;
        let wanted: Vec<_> = demand
            .kinds()
            .iter()
            .map(|wish| {
                let pauses = [0, 1].map(|waiting| demand.not_before(wish, wish.kind.pause(waiting)) > self.now);
                (wish.kind, wish.wanted, ago(wish.asked), pauses)
            })
            .collect();
        let least = self.rule.bounds.min_instances;
        let kept = demand.kept();
        format!("{members:?}{queues:?}{requests:?}{boxes:?}{holds:?}{wanted:?}{least}{kept:?}{}", self.is_stopped)
    }
}
