//! The audit chain, appended to from elsewhere, listed and exported.
//!
//! Entries never change, so a page read now and the next one read later fit together, and an export of any length needs
//! the memory of one page.

use futures::Stream;
use futures::stream::{self, TryStreamExt};

use crate::audit::{COLUMNS, Draft, Entry, Event};
use crate::error::Error;
use crate::id::ApprovalId;
use crate::ledger::Ledger;
use crate::page::{Cursor, Limit, Page, Scope, where_all};
use crate::statement::{Statement, check_text};
use crate::store::Store;
use crate::writer::Operation;

/// Entries that an export holds at once.
const AT_ONCE: i64 = 256;

/// What an answer can leave behind, beside itself; the details of such an entry name the question.
const REMEMBERED: &str = "'sandbox.path.added', 'sandbox.path.changed', 'net.host.allowed'";

/// Which entries a list holds. What is absent restricts nothing.
#[derive(Debug, Clone)]
pub struct AuditFilter {
    pub scope: Scope,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub subject: Option<String>,
    /// What concerns an exec: itself, and what a person was asked about it.
    pub exec_id: Option<String>,
    /// What concerns a question to a person: itself, and what its answer remembered.
    pub request_id: Option<ApprovalId>,
}

impl AuditFilter {
    pub fn everything(scope: Scope) -> Self {
        Self { scope, actor: None, action: None, subject: None, exec_id: None, request_id: None }
    }
}

impl Store {
    /// Appends what happened elsewhere, and returns its number in the chain.
    pub async fn append(&self, event: Event) -> Result<i64, Error> {
        event.check()?;
        self.submit(Append(event)).await
    }

    /// Newest first.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        limit: Limit,
        cursor: Option<Cursor>,
    ) -> Result<Page<Entry>, Error> {
        let mut question = Statement::new("list audit entries", "");
        let mut conditions = Vec::new();
        filter.scope.restrict(&mut conditions, &mut question);
        for (column, wanted) in [("actor", &filter.actor), ("action", &filter.action), ("subject", &filter.subject)] {
            if let Some(wanted) = wanted {
                check_text(column, wanted)?;
                conditions.push(format!("{column} = {}", question.place(wanted.as_str())));
            }
        }
        if let Some(exec_id) = &filter.exec_id {
            check_text("exec_id", exec_id)?;
            let exec = question.place(exec_id.as_str());
            let asked = format!("SELECT id FROM approvals WHERE exec_id = {exec}");
            conditions.push(format!("subject IN (SELECT CAST({exec} AS TEXT) UNION ALL {asked})"));
        }
        if let Some(request) = &filter.request_id {
            // The actions that an answer can cause are few entries, so that their details can be looked at.
            let (id, named) = (question.place(request.as_str()), format!("%\"request_id\":\"{request}\"%"));
            let named = question.place(named);
            conditions.push(format!("(subject = {id} OR (action IN ({REMEMBERED}) AND detail LIKE {named}))"));
        }
        if let Some(Cursor(seq)) = cursor {
            conditions.push(format!("seq < {}", question.place(seq)));
        }
        let at_most = question.place(limit.and_one());
        let wanted = where_all(&conditions);
        question.text = format!("SELECT {COLUMNS} FROM audit{wanted} ORDER BY seq DESC LIMIT {at_most}").into();
        let rows = self.readers().rows(question).await?;
        let entries = rows.iter().map(|row| Entry::read(row).map(|entry| (entry.seq, entry)));
        Ok(Page::cut(entries.collect::<Result<_, Error>>()?, limit))
    }

    /// Lines of JSON, oldest first, from this number on to the newest entry that is there when the end is reached.
    pub fn export(&self, from: i64) -> impl Stream<Item = Result<String, Error>> + Send + use<> {
        let pages = stream::try_unfold((self.clone(), from), |(store, from)| async move {
            let text = format!("SELECT {COLUMNS} FROM audit WHERE seq >= $1 ORDER BY seq LIMIT $2");
            let question = Statement::new("export audit entries", text).bind(from).bind(AT_ONCE);
            let rows = store.readers().rows(question).await?;
            let entries = rows.iter().map(Entry::read).collect::<Result<Vec<_>, Error>>()?;
            let next = entries.last().map(|last| last.seq + 1);
            Ok::<_, Error>(next.map(|next| (entries, (store, next))))
        });
        pages.map_ok(|entries| stream::iter(entries.into_iter().map(|entry| Ok(entry.to_json_line())))).try_flatten()
    }
}

struct Append(Event);

impl Operation for Append {
    type Answer = i64;

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<i64, Error> {
        Ok(ledger.append(Draft { event: self.0.clone(), digest: None }))
    }
}
