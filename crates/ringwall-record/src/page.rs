//! Lists: whose, which, how many, and from where on.
//!
//! Newest first, by sequence number. A cursor is the number after which the next page starts, so that a page costs the
//! same however far back it is, and rows that arrive meanwhile shift nothing. No page is longer than [`Limit::MAX`].

use std::fmt;
use std::str::FromStr;

use crate::db::statement::Statement;
use crate::error::Error;
use crate::exec::status::Status;
use crate::id::{AgentId, UserId};

/// Whose rows can be seen. What is outside of the scope does not exist for the asker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    All,
    User(UserId),
    Agent(UserId, AgentId),
}

impl Scope {
    /// Adds what restricts a statement to this scope.
    pub(crate) fn restrict(&self, conditions: &mut Vec<String>, statement: &mut Statement) {
        match self {
            Scope::All => {}
            Scope::User(user) => conditions.push(format!("user_id = {}", statement.place(user.as_str()))),
            Scope::Agent(user, agent) => {
                conditions.push(format!("user_id = {}", statement.place(user.as_str())));
                conditions.push(format!("agent_id = {}", statement.place(agent.as_str())));
            }
        }
    }
}

/// Which execs a list holds. What is absent restricts nothing.
#[derive(Debug, Clone)]
pub struct Filter {
    pub scope: Scope,
    pub task_id: Option<String>,
    pub project_id: Option<String>,
    pub status: Option<Status>,
}

impl Filter {
    pub fn everything(scope: Scope) -> Self {
        Self { scope, task_id: None, project_id: None, status: None }
    }
}

/// How many at once: 1 to 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(u16);

impl Limit {
    pub const MAX: u16 = 1000;

    /// The nearest limit there is.
    pub fn nearest(wanted: u64) -> Self {
        Self(u16::try_from(wanted).unwrap_or(u16::MAX).clamp(1, Self::MAX))
    }

    /// One more than is shown tells whether there is a next page.
    pub(crate) fn and_one(self) -> i64 {
        i64::from(self.0) + 1
    }

    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// Where the next page starts. Its text is for handing back, not for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub(crate) i64);

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = i64::from_str_radix(text, 16).ok().filter(|_| plain);
        number.map(Cursor).ok_or(Error::CursorMalformed)
    }
}

#[derive(Debug, Clone)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// There is more when this is there.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// From one row more than fits: the surplus row is cut off, and shows that there is a next page.
    pub(crate) fn cut(mut rows: Vec<(i64, T)>, limit: Limit) -> Self {
        let has_more = rows.len() > limit.get();
        rows.truncate(limit.get());
        let next = rows.last().filter(|_| has_more).map(|(seq, _)| Cursor(*seq));
        Self { items: rows.into_iter().map(|(_, item)| item).collect(), next }
    }
}

/// `WHERE a AND b`, or nothing.
pub(crate) fn where_all(conditions: &[String]) -> String {
    if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written() {
        for number in [0, 1, 255, i64::MAX] {
            assert_eq!(Cursor(number).to_string().parse::<Cursor>().unwrap(), Cursor(number));
        }
        for bad in ["", "-1", "+1", "g", "1 ", "8000000000000000", "ffffffffffffffffff"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn limits_are_bounded() {
        assert_eq!(
            [0, 1, 50, 1000, 1001, u64::MAX].map(|wanted| Limit::nearest(wanted).get()),
            [1, 1, 50, 1000, 1000, 1000]
        );
    }

    #[test]
    fn only_a_surplus_row_makes_a_next_page() {
        let rows = |count: i64| (0..count).rev().map(|seq| (seq, seq)).collect::<Vec<_>>();
        let full = Page::cut(rows(3), Limit::nearest(3));
        assert_eq!((full.items, full.next), (vec![2, 1, 0], None));
        let more = Page::cut(rows(4), Limit::nearest(3));
        assert_eq!((more.items, more.next), (vec![3, 2, 1], Some(Cursor(1))));
    }
}
