//! Reads one exec or a page of execs.
//!
//! Single reads and lists take a [`Scope`]: an exec of another tenant gives the same answer as one
//! that does not exist. A list is a union of ranges of indexes, so that it reads no more rows than
//! a few pages, however many execs there are.

use ringwall_ids::ExecId;
use serde_json::Value as Json;

use crate::db::statement::{Statement, check_text};
use crate::error::Error;
use crate::exec::columns;
use crate::exec::rows::{Exec, ExecCommand, ExecSummary};
use crate::exec::status::Status;
use crate::page::{Cursor, ExecListFilter, Limit, Page, Scope, where_all};
use crate::store::Store;

/// Maximum number of ids per statement.
const MAX_IDS: usize = 250;

impl Store {
    pub async fn exec(&self, exec_id: &ExecId, scope: &Scope) -> Result<Option<Exec>, Error> {
        let mut query = Statement::new("read an exec", "");
        let mut conditions = vec![format!("exec_id = {}", query.placeholder(exec_id.as_str()))];
        scope.restrict(&mut conditions, &mut query);
        query.text = format!("{}{}", *columns::SELECT_EXEC, where_all(&conditions)).into();
        self.readers().row(query).await?.map(|row| columns::read_exec(&row)).transpose()
    }

    /// Newest first.
    pub async fn list(
        &self,
        filter: &ExecListFilter,
        limit: Limit,
        cursor: Option<Cursor>,
    ) -> Result<Page<ExecSummary>, Error> {
        let query = query(filter, limit, cursor)?;
        let rows = self.readers().rows(query).await?;
        let rows = rows.iter().map(columns::read_summary).collect::<Result<_, Error>>()?;
        Ok(Page::cut(rows, limit))
    }

    /// The commands of these execs: long columns that [`ExecSummary`] omits. Takes no scope.
    pub async fn commands(&self, execs: &[ExecId]) -> Result<Vec<ExecCommand>, Error> {
        let mut found = Vec::new();
        for some in execs.chunks(MAX_IDS) {
            let mut query = Statement::new("read commands", "");
            let placeholders: Vec<String> = some.iter().map(|exec_id| query.placeholder(exec_id.as_str())).collect();
            let text = "SELECT seq, exec_id, user_id, args, cwd, policy_snapshot FROM sandbox_execs WHERE exec_id IN";
            query.text = format!("{text} ({}) ORDER BY seq DESC", placeholders.join(", ")).into();
            for row in self.readers().rows(query).await? {
                found.push(row.read("sandbox_execs", "exec_id", |row| {
                    Ok(ExecCommand {
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

    /// The execs of all users, oldest first, for retention.
    pub async fn oldest_execs(&self, limit: Limit, cursor: Option<Cursor>) -> Result<Page<ExecSummary>, Error> {
        let text = format!("{} WHERE seq > $1 ORDER BY seq LIMIT $2", *columns::SELECT_SUMMARY);
        let after = cursor.map_or(0, |Cursor(seq)| seq);
        let query = Statement::new("list the oldest execs", text).bind(after).bind(limit.plus_one());
        let rows = self.readers().rows(query).await?;
        let rows = rows.iter().map(columns::read_summary).collect::<Result<_, Error>>()?;
        Ok(Page::cut(rows, limit))
    }
}

/// A query that both databases answer with at most a page of rows from each range.
fn query(filter: &ExecListFilter, limit: Limit, cursor: Option<Cursor>) -> Result<Statement, Error> {
    let mut query = Statement::new("list execs", "");
    let ranges = ranges(filter, limit, cursor, &mut query)?;
    let merged = if ranges.is_empty() {
        // The list of all execs is in the order of the primary key.
        let after = cursor.map(|Cursor(seq)| format!(" WHERE seq < {}", query.placeholder(seq)));
        format!("{}{}", *columns::SELECT_SUMMARY, after.unwrap_or_default())
    } else {
        let parts = ranges.iter().map(|range| format!("SELECT * FROM ({range}) AS part"));
        parts.collect::<Vec<_>>().join(" UNION ALL ")
    };
    let at_most = query.placeholder(limit.plus_one());
    query.text = format!("{merged} ORDER BY seq DESC LIMIT {at_most}").into();
    Ok(query)
}

/// The queries whose union is the list, each limited to a page. Empty for the list of all execs.
fn ranges(
    filter: &ExecListFilter,
    limit: Limit,
    cursor: Option<Cursor>,
    query: &mut Statement,
) -> Result<Vec<String>, Error> {
    let mut conditions = Vec::new();
    filter.scope.restrict(&mut conditions, query);
    for (column, wanted) in [("task_id", &filter.task_id), ("project_id", &filter.project_id)] {
        let Some(wanted) = wanted else { continue };
        check_text(column, wanted)?;
        conditions.push(format!("{column} = {}", query.placeholder(wanted.as_str())));
    }
    let ranges: Vec<ExecRange> = match filter.status {
        None if conditions.is_empty() => return Ok(Vec::new()),
        None => {
            let ended = Status::ALL.into_iter().filter(|status| status.is_ended()).map(ExecRange::Indexed);
            ended.chain([ExecRange::NotIndexed(None), ExecRange::Unfinished(None)]).collect()
        }
        Some(status) if status.is_ended() => vec![ExecRange::Indexed(status), ExecRange::NotIndexed(Some(status))],
        Some(status) => vec![ExecRange::Unfinished(Some(status))],
    };
    let at_most = query.placeholder(limit.plus_one());
    Ok(ranges.into_iter().map(|range| range.query(&conditions, cursor, &at_most, query)).collect())
}

/// The execs of one range.
#[derive(Debug, Clone, Copy)]
enum ExecRange {
    /// Ended, and in the list indexes.
    Indexed(Status),
    /// Ended lately and not in the list indexes yet. There are few.
    NotIndexed(Option<Status>),
    Unfinished(Option<Status>),
}

impl ExecRange {
    fn query(self, filters: &[String], cursor: Option<Cursor>, at_most: &str, query: &mut Statement) -> String {
        let downwards = ("-seq", cursor.map(|Cursor(seq)| ("-seq >", -seq)));
        let (condition, status, (order, after)) = match self {
            ExecRange::Indexed(status) => ("filed = 1", Some(status), downwards),
            ExecRange::NotIndexed(status) => ("filed = 0 AND ended_at IS NOT NULL", status, downwards),
            ExecRange::Unfinished(status) => {
                let after = cursor.map(|Cursor(seq)| ("seq <", seq));
                ("filed = 0 AND ended_at IS NULL", status, ("seq DESC", after))
            }
        };
        let mut conditions = vec![condition.to_owned()];
        conditions.extend(status.map(|status| format!("status = {}", query.placeholder(status.as_str()))));
        conditions.extend_from_slice(filters);
        conditions.extend(after.map(|(comparison, seq)| format!("{comparison} {}", query.placeholder(seq))));
        format!("{}{} ORDER BY {order} LIMIT {at_most}", *columns::SELECT_SUMMARY, where_all(&conditions))
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row as _};

    use super::*;
    use crate::db::database::{Connector, Database};
    use crate::db::driver::Pool;

    fn filters() -> impl Iterator<Item = ExecListFilter> {
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
                    statuses().map(move |status| ExecListFilter {
                        scope: scope.clone(),
                        task_id: task_id.clone(),
                        project_id: project_id.clone(),
                        status,
                    })
                })
            })
        })
    }

    /// Checked with SQLite's query plans: a query that scans or sorts becomes slow only with many
    /// rows, so a test by time would not notice.
    #[tokio::test]
    async fn every_range_is_read_from_an_index_in_list_order() {
        let directory = tempfile::tempdir().unwrap();
        let connector = Connector::new(&Database::Sqlite(directory.path().join("db"))).unwrap();
        connector.migrate().await.unwrap();
        let Pool::Sqlite(pool) = connector.readers() else { panic!("no SQLite") };
        let mut explained = 0;
        for filter in filters() {
            for cursor in [None, Some(Cursor(7))] {
                let mut query = Statement::new("", "");
                for range in ranges(&filter, Limit::nearest(50), cursor, &mut query).unwrap() {
                    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {range}"));
                    let plan = sqlx::query(explain).fetch_all(&pool).await.unwrap();
                    let steps: Vec<String> = plan.iter().map(|step| step.get("detail")).collect();
                    let [step, further @ ..] = steps.as_slice() else { panic!("{range}: nothing") };
                    // Compared with `=`: neither the state, nor the limit, nor the cursor.
                    let conditions = range.matches(" = $").count();
                    let is_filed = range.contains("filed = 1");
                    let (index, equal, sorted) = match is_filed {
                        true => ("INDEX sandbox_execs_filed", conditions, 0),
                        // The few execs that ended lately are sorted.
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
        // Three scopes with four combinations of task and project: nine statuses, of which the six
        // ended ones have two ranges, and no status with eight ranges. The list of all execs has
        // none.
        assert_eq!(explained, 2 * (3 * 4 * (9 + 6 + 8) - 8));
    }
}
