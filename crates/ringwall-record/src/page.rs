//! Scopes, filters and pages of lists.
//!
//! Lists are ordered by sequence number, newest first. A cursor contains the number after which the
//! next page starts, so that every page costs the same and new rows do not shift it.

use std::fmt;
use std::str::FromStr;

use ringwall_ids::{AgentId, UserId};

use crate::db::statement::Statement;
use crate::error::Error;
use crate::exec::status::Status;

/// Limits a read to the rows of a user or agent. Other rows are treated as missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    All,
    User(UserId),
    Agent(UserId, AgentId),
}

impl Scope {
    /// Adds the conditions that restrict a statement to this scope.
    pub(crate) fn restrict(&self, conditions: &mut Vec<String>, statement: &mut Statement) {
        match self {
            Scope::All => {}
            Scope::User(user) => conditions.push(format!("user_id = {}", statement.placeholder(user.as_str()))),
            Scope::Agent(user, agent) => {
                conditions.push(format!("user_id = {}", statement.placeholder(user.as_str())));
                conditions.push(format!("agent_id = {}", statement.placeholder(agent.as_str())));
            }
        }
    }
}

/// Selects the execs of a list. An absent field does not restrict it.
#[derive(Debug, Clone)]
pub struct ExecListFilter {
    pub scope: Scope,
    pub task_id: Option<String>,
    pub project_id: Option<String>,
    pub status: Option<Status>,
}

impl ExecListFilter {
    pub fn everything(scope: Scope) -> Self {
        Self { scope, task_id: None, project_id: None, status: None }
    }
}

/// The maximum number of rows per page, 1 to 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(u16);

impl Limit {
    pub const MAX: u16 = 1000;

    /// Clamps the number to the allowed range.
    pub fn nearest(wanted: u64) -> Self {
        Self(u16::try_from(wanted).unwrap_or(u16::MAX).clamp(1, Self::MAX))
    }

    /// The number of rows to read: the additional row shows that there is a next page.
    pub(crate) fn plus_one(self) -> i64 {
        i64::from(self.0) + 1
    }

    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

/// The start of the next page. Clients pass its text back unchanged.
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
    /// Absent on the last page.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Cuts off the additional row ([`Limit::plus_one`]); if there is one, the page gets a cursor.
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
    fn cursor_text_round_trips() {
        for number in [0, 1, 255, i64::MAX] {
            assert_eq!(Cursor(number).to_string().parse::<Cursor>().unwrap(), Cursor(number));
        }
        for bad in ["", "-1", "+1", "g", "1 ", "8000000000000000", "ffffffffffffffffff"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn limit_is_clamped() {
        assert_eq!(
            [0, 1, 50, 1000, 1001, u64::MAX].map(|wanted| Limit::nearest(wanted).get()),
            [1, 1, 50, 1000, 1000, 1000]
        );
    }

    #[test]
    fn page_has_next_only_with_an_additional_row() {
        let rows = |count: i64| (0..count).rev().map(|seq| (seq, seq)).collect::<Vec<_>>();
        let full = Page::cut(rows(3), Limit::nearest(3));
        assert_eq!((full.items, full.next), (vec![2, 1, 0], None));
        let more = Page::cut(rows(4), Limit::nearest(3));
        assert_eq!((more.items, more.next), (vec![3, 2, 1], Some(Cursor(1))));
    }
}
