//! Execs, read back: one, or a page of them.
//!
//! Every question carries a scope, and what lies outside of it is not there: another tenant's exec and one that never
//! was are the same answer. Filters are bound values in a text made of fixed parts.

use serde_json::Value as Json;

use crate::db::statement::{Statement, check_text};
use crate::error::Error;
use crate::exec::columns;
use crate::exec::exec::{Command, Exec, Summary};
use crate::exec::status::Status;
use crate::id::ExecId;
use crate::page::{Cursor, Filter, Limit, Page, Scope, where_all};
use crate::store::Store;

/// As many as one statement names.
const AT_ONCE: usize = 250;

impl Store {
    pub async fn exec(&self, exec_id: &ExecId, scope: &Scope) -> Result<Option<Exec>, Error> {
        let mut question = Statement::new("read an exec", "");
        let mut conditions = vec![format!("exec_id = {}", question.place(exec_id.as_str()))];
        scope.restrict(&mut conditions, &mut question);
        question.text = format!("{}{}", *columns::SELECT_EXEC, where_all(&conditions)).into();
        self.readers().row(question).await?.map(|row| columns::read_exec(&row)).transpose()
    }

    /// Newest first.
    pub async fn list(&self, filter: &Filter, limit: Limit, cursor: Option<Cursor>) -> Result<Page<Summary>, Error> {
        let question = question(filter, limit, cursor)?;
        let rows = self.readers().rows(question).await?;
        let rows = rows.iter().map(columns::read_summary).collect::<Result<_, Error>>()?;
        Ok(Page::cut(rows, limit))
    }

    /// What these were asked to run, and where: the long columns that a list leaves out.
    pub async fn commands(&self, execs: &[ExecId]) -> Result<Vec<Command>, Error> {
        let mut found = Vec::new();
        for some in execs.chunks(AT_ONCE) {
            let mut question = Statement::new("read commands", "");
            let places: Vec<String> = some.iter().map(|exec_id| question.place(exec_id.as_str())).collect();
            let text = "SELECT seq, exec_id, user_id, args, cwd, policy_snapshot FROM sandbox_execs WHERE exec_id IN";
            question.text = format!("{text} ({}) ORDER BY seq DESC", places.join(", ")).into();
            for row in self.readers().rows(question).await? {
                found.push(row.read("sandbox_execs", "exec_id", |row| {
                    Ok(Command {
                        user_id: columns::name(row, "user_id")?,
                        args: columns::json(row, "args")?,
                        cwd: row.get("cwd")?,
                        is_code: columns::json::<Json>(row, "policy_snapshot")?.get("code").is_some(),
                    })
                })?);
            }
        }
        Ok(found)
    }

    /// Everybody's, oldest first: what there is to go over for whoever removes old ones.
    pub async fn oldest(&self, limit: Limit, cursor: Option<Cursor>) -> Result<Page<Summary>, Error> {
        let text = format!("{} WHERE seq > $1 ORDER BY seq LIMIT $2", *columns::SELECT_SUMMARY);
        let after = cursor.map_or(0, |Cursor(seq)| seq);
        let question = Statement::new("list the oldest execs", text).bind(after).bind(limit.and_one());
        let rows = self.readers().rows(question).await?;
        let rows = rows.iter().map(columns::read_summary).collect::<Result<_, Error>>()?;
        Ok(Page::cut(rows, limit))
    }
}

/// The text that both databases answer without reading more rows than a few pages have, however many there are.
fn question(filter: &Filter, limit: Limit, cursor: Option<Cursor>) -> Result<Statement, Error> {
    let mut question = Statement::new("list execs", "");
    let ranges = ranges(filter, limit, cursor, &mut question)?;
    let merged = if ranges.is_empty() {
        // Everything of everybody is what the table itself is sorted by.
        let after = cursor.map(|Cursor(seq)| format!(" WHERE seq < {}", question.place(seq)));
        format!("{}{}", *columns::SELECT_SUMMARY, after.unwrap_or_default())
    } else {
        let parts = ranges.iter().map(|range| format!("SELECT * FROM ({range}) AS part"));
        parts.collect::<Vec<_>>().join(" UNION ALL ")
    };
    let at_most = question.place(limit.and_one());
    question.text = format!("{merged} ORDER BY seq DESC LIMIT {at_most}").into();
    Ok(question)
}

/// The ranges of indexes that make up a list, as long as a page each. None where the list is everything.
fn ranges(
    filter: &Filter,
    limit: Limit,
    cursor: Option<Cursor>,
    question: &mut Statement,
) -> Result<Vec<String>, Error> {
    let mut conditions = Vec::new();
    filter.scope.restrict(&mut conditions, question);
    for (column, wanted) in [("task_id", &filter.task_id), ("project_id", &filter.project_id)] {
        let Some(wanted) = wanted else { continue };
        check_text(column, wanted)?;
        conditions.push(format!("{column} = {}", question.place(wanted.as_str())));
    }
    let states: Vec<State> = match filter.status {
        None if conditions.is_empty() => return Ok(Vec::new()),
        None => {
            let ended = Status::ALL.into_iter().filter(|status| status.is_ended()).map(State::Filed);
            ended.chain([State::Unfiled(None), State::Unfinished(None)]).collect()
        }
        Some(status) if status.is_ended() => vec![State::Filed(status), State::Unfiled(Some(status))],
        Some(status) => vec![State::Unfinished(Some(status))],
    };
    let at_most = question.place(limit.and_one());
    Ok(states.into_iter().map(|state| state.range(&conditions, cursor, &at_most, question)).collect())
}

/// What one range has in common beside what was asked for.
#[derive(Debug, Clone, Copy)]
enum State {
    /// It has ended, and is in the indices of lists.
    Filed(Status),
    /// It has ended lately. There are few.
    Unfiled(Option<Status>),
    Unfinished(Option<Status>),
}

impl State {
    fn range(self, asked: &[String], cursor: Option<Cursor>, at_most: &str, question: &mut Statement) -> String {
        let downwards = ("-seq", cursor.map(|Cursor(seq)| ("-seq >", -seq)));
        let (place, status, (order, after)) = match self {
            State::Filed(status) => ("filed = 1", Some(status), downwards),
            State::Unfiled(status) => ("filed = 0 AND ended_at IS NOT NULL", status, downwards),
            State::Unfinished(status) => {
                let after = cursor.map(|Cursor(seq)| ("seq <", seq));
                ("filed = 0 AND ended_at IS NULL", status, ("seq DESC", after))
            }
        };
        let mut conditions = vec![place.to_owned()];
        conditions.extend(status.map(|status| format!("status = {}", question.place(status.as_str()))));
        conditions.extend_from_slice(asked);
        conditions.extend(after.map(|(comparison, seq)| format!("{comparison} {}", question.place(seq))));
        format!("{}{} ORDER BY {order} LIMIT {at_most}", *columns::SELECT_SUMMARY, where_all(&conditions))
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row as _};

    use super::*;
    use crate::db::database::{Connector, Database};
    use crate::db::driver::Pool;

    fn filters() -> impl Iterator<Item = Filter> {
        let user = || "u".parse().unwrap();
        let scopes = [Scope::All, Scope::User(user()), Scope::Agent(user(), "a".parse().unwrap())];
        let either = [None, Some("x".to_owned())];
        let statuses = || Status::ALL.into_iter().map(Some).chain([None]);
        scopes.into_iter().flat_map(move |scope| {
            let either = either.clone();
            either.clone().into_iter().flat_map(move |task_id| {
                let scope = scope.clone();
                either.clone().into_iter().flat_map(move |project_id| {
                    let (scope, task_id) = (scope.clone(), task_id.clone());
                    statuses().map(move |status| Filter {
                        scope: scope.clone(),
                        task_id: task_id.clone(),
                        project_id: project_id.clone(),
                        status,
                    })
                })
            })
        })
    }

    /// Read off SQLite's own plans: a question that reads more rows than its page has, or sorts any, is slow only when
    /// there are very many.
    #[tokio::test]
    async fn every_range_is_one_of_an_index_in_the_order_of_the_list() {
        let directory = tempfile::tempdir().unwrap();
        let connector = Connector::new(&Database::Sqlite(directory.path().join("db"))).unwrap();
        connector.migrate().await.unwrap();
        let Pool::Sqlite(pool) = connector.readers() else { panic!("no SQLite") };
        let mut explained = 0;
        for filter in filters() {
            for cursor in [None, Some(Cursor(7))] {
                let mut question = Statement::new("", "");
                for range in ranges(&filter, Limit::nearest(50), cursor, &mut question).unwrap() {
                    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {range}"));
                    let plan = sqlx::query(explain).fetch_all(&pool).await.unwrap();
                    let steps: Vec<String> = plan.iter().map(|step| step.get("detail")).collect();
                    let [step, further @ ..] = steps.as_slice() else { panic!("{range}: nothing") };
                    // The state and the limit are none; a cursor is no equality.
                    let conditions = range.matches(" = $").count();
                    let is_filed = range.contains("filed = 1");
                    let (index, equal, sorted) = match is_filed {
                        true => ("INDEX sandbox_execs_filed", conditions, 0),
                        // Of what has ended lately little is sorted.
                        false => match range.contains("IS NOT NULL") {
                            true => ("INDEX sandbox_execs_unfiled (ended_at>?", 0, 1),
                            false => ("INDEX sandbox_execs_unfiled (ended_at=?", 1, 0),
                        },
                    };
                    assert!(step.contains(index) && step.matches("=?").count() == equal, "{range}: {step}");
                    assert_eq!(further.len(), sorted, "{range}: {further:?}");
                    explained += 1;
                }
            }
        }
        // Each scope with each question: nine statuses, of which six ended ones have two parts, and all eight parts, except
        // for everything of everybody.
        assert_eq!(explained, 2 * (3 * 4 * (9 + 6 + 8) - 8));
    }
}
