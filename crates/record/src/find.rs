//! Execs, read back: one, a page of them, how many.
//!
//! Every question carries a scope, and what lies outside of it is not there: another tenant's exec and one that never
//! was are the same answer. Filters are bound values in a text made of fixed parts.

use std::collections::BTreeMap;

use crate::columns::{self, name};
use crate::error::Error;
use crate::exec::{Exec, Summary};
use crate::id::ExecId;
use crate::page::{Cursor, Filter, Limit, Page, Scope, where_all};
use crate::statement::{Statement, check_text};
use crate::status::Status;
use crate::store::Store;

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
        let mut question = Statement::new("list execs", "");
        let mut conditions = Vec::new();
        filter.scope.restrict(&mut conditions, &mut question);
        let asked = [
            ("task_id", filter.task_id.as_deref()),
            ("project_id", filter.project_id.as_deref()),
            ("status", filter.status.map(Status::as_str)),
        ];
        for (column, wanted) in asked {
            let Some(wanted) = wanted else { continue };
            check_text(column, wanted)?;
            let place = question.place(wanted);
            conditions.push(if column == leading(filter) {
                format!("{column} = {place}")
            } else {
                // The same, in a form that no index answers.
                format!("coalesce({column}, '') = {place}")
            });
        }
        if let Some(Cursor(seq)) = cursor {
            conditions.push(format!("seq < {}", question.place(seq)));
        }
        let at_most = question.place(limit.and_one());
        let wanted = where_all(&conditions);
        question.text = format!("{}{wanted} ORDER BY seq DESC LIMIT {at_most}", *columns::SELECT_SUMMARY).into();
        let rows = self.readers().rows(question).await?;
        let rows = rows.iter().map(columns::read_summary).collect::<Result<_, Error>>()?;
        Ok(Page::cut(rows, limit))
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

    /// Statuses that no exec has are left out. This counts rows, so it takes longer the more there are.
    pub async fn count_by_status(&self, scope: &Scope) -> Result<BTreeMap<Status, u64>, Error> {
        let mut question = Statement::new("count execs", "");
        let mut conditions = Vec::new();
        scope.restrict(&mut conditions, &mut question);
        let wanted = where_all(&conditions);
        question.text = format!("SELECT status, count(*) AS number FROM sandbox_execs{wanted} GROUP BY status").into();
        let rows = self.readers().rows(question).await?;
        let counts = rows.iter().map(|row| {
            row.read("sandbox_execs", "status", |row| {
                Ok((name(row, "status")?, row.get::<i64>("number")?.unsigned_abs()))
            })
        });
        counts.collect()
    }
}

/// Of several questions the one that leaves the fewest rows, which is to be answered by its index. Neither database can
/// know: a task has few execs, most execs succeed or fail, and whatever else became of an exec is rare.
fn leading(filter: &Filter) -> &'static str {
    let is_rare = |status| !matches!(status, Status::Succeeded | Status::Failed);
    match filter {
        Filter { task_id: Some(_), .. } => "task_id",
        Filter { project_id: Some(_), status: Some(status), .. } if is_rare(*status) => "status",
        Filter { project_id: Some(_), .. } => "project_id",
        Filter { .. } => "status",
    }
}
