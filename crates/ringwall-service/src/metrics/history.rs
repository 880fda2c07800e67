//! The last hour of the server by minute: ended execs and the maximum of concurrent work.
//!
//! The numbers are collected in memory as events happen, so frequent requests never read the
//! record. They start with the server. A user sees their own numbers; beyond [`MAX_USERS`] users in
//! one minute, the rest count only in the sum.

use std::collections::{HashMap, VecDeque};

use ringwall_ids::UserId;
use ringwall_record::{Status, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

const MINUTE: i64 = 60_000;
const HOUR: usize = 60;
/// Users with numbers of their own in one minute.
const MAX_USERS: usize = 1000;

/// One minute. Current work is sampled every five seconds, and the maximum is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Minute {
    pub at: i64,
    /// Execs that succeeded or were cancelled
    pub ended_well: u32,
    /// Execs that failed, were denied, took too long or were lost
    pub went_wrong: u32,
    pub running: u32,
    pub waiting: u32,
    pub asking: u32,
    /// Session boxes and warm boxes of all users
    pub boxes: u32,
}

impl Minute {
    fn raise_to(&mut self, load: &Load) {
        self.running = self.running.max(load.running);
        self.waiting = self.waiting.max(load.waiting);
        self.asking = self.asking.max(load.asking);
    }
}

/// A sample of current work: execs that run and wait, and open approvals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: u32,
    pub(crate) waiting: u32,
    pub(crate) asking: u32,
}

/// A sample of the load of each user and of the number of boxes.
#[derive(Debug, Default)]
pub(crate) struct LoadByUser {
    pub(crate) users: HashMap<UserId, Load>,
    pub(crate) boxes: u32,
}

impl LoadByUser {
    pub(crate) fn sum(&self) -> Load {
        self.users.values().fold(Load::default(), |sum, one| Load {
            running: sum.running + one.running,
            waiting: sum.waiting + one.waiting,
            asking: sum.asking + one.asking,
        })
    }
}

/// One minute since 1970, in total and by user.
#[derive(Debug, Default)]
struct MinuteByUser {
    number: i64,
    all: Minute,
    users: HashMap<UserId, Minute>,
}

impl MinuteByUser {
    fn of(&mut self, user: &UserId) -> Option<&mut Minute> {
        if self.users.len() >= MAX_USERS && !self.users.contains_key(user) {
            return None;
        }
        Some(self.users.entry(user.clone()).or_default())
    }
}

/// The newest minutes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    minutes: VecDeque<MinuteByUser>,
}

impl History {
    pub(crate) fn ended(&mut self, at: Timestamp, user: &UserId, status: Status) {
        let minute = self.minute(at);
        let count = |minute: &mut Minute| match status {
            Status::Failed | Status::Timeout | Status::PolicyDenied | Status::Lost => minute.went_wrong += 1,
            Status::Queued | Status::Running | Status::AwaitingApproval | Status::Succeeded | Status::Cancelled => {
                minute.ended_well += 1;
            }
        };
        count(&mut minute.all);
        minute.of(user).map(count);
    }

    pub(crate) fn sampled(&mut self, at: Timestamp, sample: &LoadByUser) {
        let minute = self.minute(at);
        minute.all.raise_to(&sample.sum());
        minute.all.boxes = minute.all.boxes.max(sample.boxes);
        for (user, load) in &sample.users {
            if let Some(own) = minute.of(user) {
                own.raise_to(load);
            }
        }
    }

    /// The last sixty minutes, empty ones included.
    pub(crate) fn hour(&self, at: Timestamp, whose: Option<&UserId>) -> Vec<Minute> {
        let newest = self.minutes.back().map_or(0, |newest| newest.number).max(at.milliseconds() / MINUTE);
        let first = newest - HOUR as i64 + 1;
        let mut hour: Vec<Minute> =
            (first..=newest).map(|number| Minute { at: number * MINUTE, ..Minute::default() }).collect();
        for kept in &self.minutes {
            let counted = match whose {
                None => kept.all,
                Some(user) => kept.users.get(user).copied().unwrap_or_default(),
            };
            if let Some(place) = usize::try_from(kept.number - first).ok().and_then(|index| hour.get_mut(index)) {
                *place = Minute { at: place.at, boxes: kept.all.boxes, ..counted };
            }
        }
        hour
    }

    /// The minute of a time. After the clock was set back, the newest minute is used.
    fn minute(&mut self, at: Timestamp) -> &mut MinuteByUser {
        let number = at.milliseconds() / MINUTE;
        if self.minutes.back().is_none_or(|newest| newest.number < number) {
            while self.minutes.len() >= HOUR {
                self.minutes.pop_front();
            }
            self.minutes.push_back(MinuteByUser { number, ..MinuteByUser::default() });
        }
        let newest = self.minutes.len() - 1;
        &mut self.minutes[newest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64, second: i64) -> Timestamp {
        Timestamp::from_milliseconds(minute * MINUTE + second * 1000)
    }

    fn user(name: &str) -> UserId {
        name.parse().unwrap()
    }

    fn now(name: &str, running: u32, boxes: u32) -> LoadByUser {
        let load = Load { running, waiting: 2 * running, asking: 1 };
        LoadByUser {
            users: HashMap::from([(user(name), load), (user("other"), Load { running: 1, ..Load::default() })]),
            boxes,
        }
    }

    #[test]
    fn ended_and_running_execs_count_in_their_minute() {
        let mut history = History::default();
        for status in [Status::Succeeded, Status::Cancelled, Status::Failed, Status::Timeout, Status::PolicyDenied] {
            history.ended(at(100, 1), &user("ann"), status);
        }
        history.ended(at(100, 59), &user("bob"), Status::Succeeded);
        for (second, running) in [(5, 1), (10, 3), (15, 2)] {
            history.sampled(at(100, second), &now("ann", running, 4));
        }
        history.ended(at(102, 0), &user("ann"), Status::Succeeded);
        let all = history.hour(at(103, 0), None);
        assert_eq!((all.len(), all[0].at, all[59].at), (60, 44 * MINUTE, 103 * MINUTE));
        let busy =
            Minute { at: 100 * MINUTE, ended_well: 3, went_wrong: 3, running: 4, waiting: 6, asking: 1, boxes: 4 };
        assert_eq!(all[56], busy);
        assert_eq!((all[57].ended_well, all[58].ended_well, all[59].ended_well), (0, 1, 0));
        let of_ann = history.hour(at(103, 0), Some(&user("ann")));
        assert_eq!(of_ann[56], Minute { ended_well: 2, running: 3, ..busy });
        let of_nobody = history.hour(at(103, 0), Some(&user("carl")));
        assert_eq!(of_nobody[56], Minute { at: busy.at, boxes: 4, ..Minute::default() });
    }

    #[test]
    fn history_keeps_one_hour_and_limited_users() {
        let mut history = History::default();
        for minute in 0..200 {
            history.ended(at(minute, 0), &user("ann"), Status::Succeeded);
        }
        assert_eq!(history.minutes.len(), HOUR);
        assert!(history.hour(at(199, 0), None).iter().all(|minute| minute.ended_well == 1));
        assert!(history.hour(at(999, 0), None).iter().all(|minute| minute.ended_well == 0), "long ago");
        // Events after the clock was set back are counted.
        history.ended(at(10, 0), &user("ann"), Status::Failed);
        assert_eq!(
            history.hour(at(10, 0), None)[59],
            Minute { at: 199 * MINUTE, ended_well: 1, went_wrong: 1, ..Minute::default() }
        );
        for number in 0..2 * MAX_USERS {
            history.ended(at(200, 0), &user(&format!("u{number}")), Status::Succeeded);
        }
        let newest = history.minutes.back().unwrap();
        assert_eq!((newest.users.len(), newest.all.ended_well), (MAX_USERS, 2 * MAX_USERS as u32));
    }
}
