//! Appends events to the audit chain, and lists and exports its entries.
//!
//! Entries never change, so pages that are read at different times fit together, and an export
//! needs the memory of one page.

use futures::Stream;
use futures::stream::{self, TryStreamExt};
use ringwall_ids::ApprovalId;
use serde_json::json;

use crate::audit::entry::{COLUMNS, Draft, Entry, Event};
use crate::db::statement::{Statement, check_text};
use crate::error::Error;
use crate::page::{Cursor, Limit, Page, Scope, where_all};
use crate::store::Store;

/// Entries per page of an export.
const EXPORT_PAGE: i64 = 256;

/// Actions of entries that an answer to an approval can cause. Their details contain its id.
const REMEMBERED: &str = "'sandbox.path.added', 'sandbox.path.changed', 'net.host.allowed'";

/// Selects the entries of a list. An absent field does not restrict it.
#[derive(Debug, Clone)]
pub struct AuditFilter {
    pub scope: Scope,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub subject: Option<String>,
    /// Entries about this exec and about its approvals.
    pub exec_id: Option<String>,
    /// Entries about this approval and about the paths or hosts that its answer added.
    pub request_id: Option<ApprovalId>,
}

impl AuditFilter {
    pub fn everything(scope: Scope) -> Self {
        Self { scope, actor: None, action: None, subject: None, exec_id: None, request_id: None }
    }
}

impl Store {
    /// Appends an event and returns its number in the chain.
    pub async fn append(&self, event: Event) -> Result<i64, Error> {
        event.check()?;
        self.submit(async move |ledger| Ok(ledger.append(Draft { event: event.clone(), digest: None }))).await
    }

    /// Newest first.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        limit: Limit,
        cursor: Option<Cursor>,
    ) -> Result<Page<Entry>, Error> {
        let query = query(filter, limit, cursor)?;
        let rows = self.readers().rows(query).await?;
        let entries = rows.iter().map(|row| Entry::read(row).map(|entry| (entry.seq, entry)));
        Ok(Page::cut(entries.collect::<Result<_, Error>>()?, limit))
    }

    /// The entries from number `from` on as lines of JSON, oldest first. Includes entries that are
    /// appended during the export.
    pub fn export(&self, from: i64) -> impl Stream<Item = Result<String, Error>> + Send + use<> {
        let pages = stream::try_unfold((self.clone(), from), |(store, from)| async move {
            let text = format!("SELECT {COLUMNS} FROM audit WHERE seq >= $1 ORDER BY seq LIMIT $2");
            let query = Statement::new("export audit entries", text).bind(from).bind(EXPORT_PAGE);
            let rows = store.readers().rows(query).await?;
            let entries = rows.iter().map(Entry::read).collect::<Result<Vec<_>, Error>>()?;
            let next = entries.last().map(|last| last.seq + 1);
            Ok::<_, Error>(next.map(|next| (entries, (store, next))))
        });
        pages
            .map_ok(|entries| stream::iter(entries.into_iter().map(|entry| Ok(format!("{}\n", json!(entry))))))
            .try_flatten()
    }
}

/// Placeholder in a query for each of the two conditions: the entry is in the list indexes, or it
/// is new and not in them yet.
const FILED_CONDITION: &str = "FILED_CONDITION";
const FILED_CONDITIONS: [&str; 2] = ["filed = 1", "(filed = 0 AND seq > (SELECT filed_through FROM audit_head))"];

fn query(filter: &AuditFilter, limit: Limit, cursor: Option<Cursor>) -> Result<Statement, Error> {
    let mut query = Statement::new("list audit entries", "");
    let mut conditions = Vec::new();
    filter.scope.restrict(&mut conditions, &mut query);
    for (column, wanted) in [("actor", &filter.actor), ("action", &filter.action), ("subject", &filter.subject)] {
        if let Some(wanted) = wanted {
            check_text(column, wanted)?;
            conditions.push(format!("{column} = {}", query.placeholder(wanted.as_str())));
        }
    }
    if let Some(exec_id) = &filter.exec_id {
        check_text("exec_id", exec_id)?;
        let exec = query.placeholder(exec_id.as_str());
        let asked = format!("SELECT id FROM approvals WHERE exec_id = {exec}");
        conditions.push(format!("subject IN (SELECT CAST({exec} AS TEXT) UNION ALL {asked})"));
    }
    if let Some(request) = &filter.request_id {
        // Few entries have these actions, so that a search in their details is cheap.
        let (id, named) = (query.placeholder(request.as_str()), format!("%\"request_id\":\"{request}\"%"));
        let remembered = format!("action IN ({REMEMBERED}) AND detail LIKE {}", query.placeholder(named));
        // Repeated in each half, so that the planner can use a partial index for each.
        conditions.push(format!("({FILED_CONDITION} AND subject = {id} OR {FILED_CONDITION} AND {remembered})"));
    }
    // The list of all entries is in the order of the primary key.
    let is_all = conditions.is_empty();
    conditions.extend(cursor.map(|Cursor(seq)| format!("seq < {}", query.placeholder(seq))));
    conditions.extend((!is_all).then(|| FILED_CONDITION.to_owned()));
    let at_most = query.placeholder(limit.plus_one());
    let list = format!("SELECT {COLUMNS} FROM audit{} ORDER BY seq DESC LIMIT {at_most}", where_all(&conditions));
    query.text = if is_all {
        list.into()
    } else {
        let parts = FILED_CONDITIONS
            .map(|condition| format!("SELECT * FROM ({}) AS part", list.replace(FILED_CONDITION, condition)));
        format!("{} ORDER BY seq DESC LIMIT {at_most}", parts.join(" UNION ALL ")).into()
    };
    Ok(query)
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row as _};

    use super::*;
    use crate::db::database::{Connector, Database};
    use crate::db::driver::Pool;

    /// Checked with SQLite's query plans: entries in the list indexes are found by an index, the
    /// few new ones by a scan of the numbers after `filed_through`.
    #[tokio::test]
    async fn every_list_uses_an_index() {
        let directory = tempfile::tempdir().unwrap();
        let connector = Connector::new(&Database::Sqlite(directory.path().join("db"))).unwrap();
        connector.migrate().await.unwrap();
        let Pool::Sqlite(pool) = connector.readers() else { panic!("no SQLite") };
        let everything = || AuditFilter::everything(Scope::All);
        let text = || Some("x".to_owned());
        let filters = [
            AuditFilter::everything(Scope::User("u".parse().unwrap())),
            AuditFilter::everything(Scope::Agent("u".parse().unwrap(), "a".parse().unwrap())),
            AuditFilter { actor: text(), ..everything() },
            AuditFilter { action: text(), ..everything() },
            AuditFilter { subject: text(), ..everything() },
            AuditFilter { exec_id: text(), ..everything() },
            AuditFilter { request_id: Some("a_0123456789abcdef0123456789abcdef".parse().unwrap()), ..everything() },
        ];
        for filter in filters {
            for cursor in [None, Some(Cursor(7))] {
                let query = query(&filter, Limit::nearest(50), cursor).unwrap();
                let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", query.text));
                let plan = sqlx::query(explain).fetch_all(&pool).await.unwrap();
                let steps: Vec<String> = plan.iter().map(|step| step.get("detail")).collect();
                let of_table = || steps.iter().filter(|step| step.contains(" audit ") || step.ends_with(" audit"));
                let unindexed = "SEARCH audit USING INTEGER PRIMARY KEY (rowid>?";
                assert!(of_table().any(|step| step.contains(unindexed)), "{}: {steps:?}", query.text);
                let is_searched = |step: &&String| {
                    let by = ["action", "actor", "subject", "user"]
                        .map(|name| format!("SEARCH audit USING INDEX audit_{name}"));
                    step.contains(unindexed) || by.iter().any(|by| step.contains(by.as_str()))
                };
                assert!(
                    of_table().all(|step| is_searched(&step)) && of_table().count() > 1,
                    "{}: {steps:?}",
                    query.text
                );
            }
        }
    }
}
