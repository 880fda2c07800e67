//! The spares of a server: kept between a least and a most number of them, of the shapes that were asked for last.
//!
//! Whoever asks and gets none teaches the stock what to make. This only keeps count: making is its owner's, who asks for
//! what is wanted (`next`), makes it, and puts it in. Where making fails it is tried again later and later. Making takes a
//! processor away from those who run: it waits for a pause, and plain spares, which save little, for a long one.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::shape::Shape;
use super::spare::{Spare, SpareKind};

/// More shapes than most servers have settings for.
const MOST_LINES: usize = 8;
/// Between looks for what has waited too long.
const LOOK: Duration = Duration::from_secs(5);
/// So long nobody has taken a spare: whoever took the last one has its answer by now.
const PAUSE: Duration = Duration::from_millis(5);
const LONG_PAUSE: Duration = Duration::from_millis(30);
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of a kind and shape that is asked for.
    pub least: usize,
    /// Of all.
    pub most: usize,
    /// So long nobody asked: they go.
    pub idle: Duration,
}

#[derive(Debug)]
pub struct Stock {
    bounds: Bounds,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Line>,
    closed: bool,
    /// When somebody last asked.
    asked: Option<Instant>,
    hits: u64,
    misses: u64,
}

/// Spares that can stand in for each other.
#[derive(Debug)]
struct Line {
    kind: SpareKind,
    shape: Shape,
    spares: VecDeque<Spare>,
    wanted: usize,
    being_made: usize,
    asked: Instant,
    failures: u32,
    /// Not to be tried before.
    from: Option<Instant>,
}

/// What is to be done about the stock now.
enum Choice {
    Make(SpareKind, Shape),
    /// Nothing; to be looked at again by then.
    Later(Duration),
}

/// What the stock holds, and how often it had what was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub idle: usize,
    pub being_made: usize,
    pub hits: u64,
    pub misses: u64,
}

impl Stock {
    pub fn new(bounds: Bounds) -> Self {
        Stock { bounds, state: Mutex::default(), changed: Notify::new() }
    }

    /// A living spare of this kind and shape.
    pub fn take(&self, kind: SpareKind, shape: &Shape) -> Option<Spare> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        let now = Instant::now();
        state.asked = Some(now);
        let line = state.line(kind, shape, self.bounds.least);
        line.asked = now;
        let mut dead = Vec::new();
        let spare = loop {
            match line.spares.pop_front() {
                Some(spare) if !spare.is_alive() => dead.push(spare),
                found => break found,
            }
        };
        match &spare {
            Some(_) => state.hits += 1,
            None => {
                line.wanted = (line.wanted + 1).min(self.bounds.most);
                state.misses += 1;
            }
        }
        drop(state);
        self.changed.notify_one();
        spare
    }

    /// Waits until another spare is wanted, and says which. Whoever asks makes it, and says what came of it.
    pub async fn next(&self) -> (SpareKind, Shape) {
        loop {
            let wait = match self.choose() {
                Choice::Make(kind, shape) => return (kind, shape),
                Choice::Later(wait) => wait,
            };
            let _ = tokio::time::timeout(wait, self.changed.notified()).await;
        }
    }

    fn choose(&self) -> Choice {
        let now = Instant::now();
        let mut state = self.lock();
        let idle = self.bounds.idle;
        let gone: Vec<Line> = state.lines.extract_if(.., |line| now.duration_since(line.asked) >= idle).collect();
        let total: usize = state.lines.iter().map(Line::count).sum();
        let quiet = state.asked.map_or(LOOK, |asked| now.duration_since(asked));
        let has_room = !state.closed && total < self.bounds.most;
        // The emptiest first.
        let wanting = state.lines.iter_mut().filter(|line| has_room && line.count() < line.wanted);
        let chosen = wanting.map(|line| (line.wait(now, quiet), line)).min_by_key(|(wait, line)| (*wait, line.count()));
        let choice = match chosen {
            Some((Duration::ZERO, line)) => {
                line.being_made += 1;
                Choice::Make(line.kind, line.shape.clone())
            }
            Some((wait, _)) => Choice::Later(wait.min(LOOK)),
            None => Choice::Later(LOOK),
        };
        drop(state);
        // Ending boxes takes a moment.
        drop(gone);
        choice
    }

    pub fn put(&self, spare: Spare) {
        let mut state = self.lock();
        let closed = state.closed;
        if let Some(line) = state.find(spare.kind(), spare.shape()) {
            line.being_made = line.being_made.saturating_sub(1);
            (line.failures, line.from) = (0, None);
            if !closed {
                line.spares.push_back(spare);
            }
        }
    }

    /// What was wanted could not be made.
    pub fn fail(&self, kind: SpareKind, shape: &Shape) {
        let mut state = self.lock();
        if let Some(line) = state.find(kind, shape) {
            line.being_made = line.being_made.saturating_sub(1);
            let delay = FIRST_DELAY.saturating_mul(1 << line.failures.min(16)).min(LONGEST_DELAY);
            line.from = Some(Instant::now() + delay);
            line.failures += 1;
        }
    }

    /// Ends all of them, and takes in no more.
    pub fn close(&self) {
        let lines = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.lines)
        };
        drop(lines);
    }

    pub fn counts(&self) -> Counts {
        let state = self.lock();
        Counts {
            idle: state.lines.iter().map(|line| line.spares.len()).sum(),
            being_made: state.lines.iter().map(|line| line.being_made).sum(),
            hits: state.hits,
            misses: state.misses,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, kind: SpareKind, shape: &Shape) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| line.kind == kind && line.shape == *shape)
    }

    /// The line of this kind and shape, begun if need be in the place of the one that was not asked for longest.
    fn line(&mut self, kind: SpareKind, shape: &Shape, least: usize) -> &mut Line {
        let known = self.lines.iter().position(|line| line.kind == kind && line.shape == *shape);
        let index = known.unwrap_or_else(|| {
            if self.lines.len() >= MOST_LINES
                && let Some(oldest) = (0..self.lines.len()).min_by_key(|index| self.lines[*index].asked)
            {
                self.lines.swap_remove(oldest);
            }
            self.lines.push(Line {
                kind,
                shape: shape.clone(),
                spares: VecDeque::new(),
                wanted: least,
                being_made: 0,
                asked: Instant::now(),
                failures: 0,
                from: None,
            });
            self.lines.len() - 1
        });
        &mut self.lines[index]
    }
}

impl Line {
    fn count(&self) -> usize {
        self.spares.len() + self.being_made
    }

    /// How long the next is not to be made yet, when nobody has asked for so long.
    fn wait(&self, now: Instant, quiet: Duration) -> Duration {
        let pause = match self.kind {
            // Whoever comes next would wait longer for an interpreter than anybody for a processor.
            SpareKind::Python if self.spares.is_empty() => Duration::ZERO,
            SpareKind::Python => PAUSE,
            SpareKind::Plain => LONG_PAUSE,
        };
        let failed = self.from.map_or(Duration::ZERO, |from| from.saturating_duration_since(now));
        failed.max(pause.saturating_sub(quiet))
    }
}
