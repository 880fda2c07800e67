//! Compares execs and approvals with their entries.
//!
//! These tables grow with use, so they are compared by queries that keep no rows in memory.

use std::collections::HashMap;

use crate::approvals::ROW_DIGEST;
use crate::audit::entry::Entry;
use crate::audit::finding::{Finding, Note};
use crate::audit::rows::{APPROVAL_QUESTIONS, APPROVALS};
use crate::audit::verify::Verification;
use crate::db::driver::{Row, Snapshot};
use crate::db::statement::Statement;
use crate::error::Error;
use crate::paths::{SWITCH, read_switch};

/// Maximum number of findings per query.
const MAX_FINDINGS: i64 = 100;

const OPENED: &str = "approval.opened";

/// SQL condition: an entry with this subject and action exists. The first half uses an index, the
/// second scans the few entries that are in no index yet. An entry whose `filed` was changed is not
/// found; the pass over the chain reports it as hidden.
fn recorded(subject: &str, action: &str) -> String {
    let entry = format!("FROM audit WHERE subject = {subject} AND action {action}");
    format!(
        "(EXISTS (SELECT 1 {entry} AND filed = 1) OR \
          EXISTS (SELECT 1 {entry} AND filed = 0 AND seq > (SELECT filed_through FROM audit_head)))"
    )
}

/// Compares approvals with these entries about them. Skips missing approvals, because retention
/// removes them with their exec.
pub(crate) async fn compare_approvals(
    snapshot: &mut Snapshot,
    entries: &[Entry],
    verification: &mut Verification,
) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut query = Statement::new("read approvals", "");
    let placeholders: Vec<String> = entries.iter().map(|entry| query.placeholder(entry.subject.as_str())).collect();
    query.text = format!("SELECT * FROM approvals WHERE id IN ({})", placeholders.join(", ")).into();
    let mut rows = HashMap::new();
    for row in snapshot.rows(query).await? {
        rows.insert(row.read("approvals", "id", |row| row.get::<String>("id"))?, row);
    }
    for entry in entries {
        if let Some(row) = rows.get(&entry.subject)
            && !is_as_recorded(row, entry).unwrap_or(false)
        {
            verification.find(Finding::ApprovalAltered { seq: entry.seq, id: entry.subject.clone() });
        }
    }
    Ok(())
}

/// An error means that the row cannot be read.
fn is_as_recorded(row: &Row, entry: &Entry) -> Result<bool, Error> {
    let detail: serde_json::Value = serde_json::from_str(&entry.detail).unwrap_or_default();
    let table = if entry.action == OPENED { &APPROVAL_QUESTIONS } else { &APPROVALS };
    Ok(detail[ROW_DIGEST].as_str() == Some(&table.read(row)?.digest.to_string()))
}

/// Finds approvals after the chain's start without an entry about their opening or their answer.
pub(crate) async fn find_unrecorded_approvals(
    snapshot: &mut Snapshot,
    start: i64,
    verification: &mut Verification,
) -> Result<(), Error> {
    let answered = recorded("approval.id", "= 'approval.' || approval.status");
    let text = format!(
        "SELECT approval.id AS id FROM approvals AS approval LEFT JOIN audit AS entry ON entry.seq = approval.seq \
         WHERE approval.seq > $1 AND (entry.seq IS NULL OR entry.subject <> approval.id OR entry.action <> '{OPENED}' \
         OR (approval.status <> 'pending' AND NOT {answered})) ORDER BY approval.seq LIMIT $2"
    );
    let query = Statement::new("look for approvals without an entry", text).bind(start).bind(MAX_FINDINGS);
    for row in snapshot.rows(query).await? {
        let id = row.read("approvals", "id", |row| row.get("id"))?;
        verification.find(Finding::ApprovalUnrecorded { id });
    }
    Ok(())
}

/// Finds execs after the chain's start that ended without an entry. `outcomes` is the number of
/// outcomes with a matching entry; if as many execs have ended, the slow query is skipped.
pub(crate) async fn find_unrecorded_outcomes(
    snapshot: &mut Snapshot,
    start: i64,
    outcomes: i64,
    verification: &mut Verification,
) -> Result<(), Error> {
    let text = "SELECT count(*) AS count FROM sandbox_execs WHERE seq > $1 AND ended_at IS NOT NULL";
    if count(snapshot, Statement::new("count ended execs", text).bind(start)).await? == outcomes {
        return Ok(());
    }
    let ended = recorded("exec.exec_id", "IN ('exec.outcome', 'exec.lost', 'exec.denied')");
    let text = format!(
        "SELECT exec.exec_id AS exec_id FROM sandbox_execs AS exec \
         WHERE exec.seq > $1 AND exec.ended_at IS NOT NULL AND NOT {ended} ORDER BY exec.seq LIMIT $2"
    );
    let query = Statement::new("look for execs without an outcome", text).bind(start).bind(MAX_FINDINGS);
    for row in snapshot.rows(query).await? {
        let exec_id = row.read("sandbox_execs", "exec_id", |row| row.get("exec_id"))?;
        verification.find(Finding::OutcomeUnrecorded { exec_id });
    }
    Ok(())
}

/// Notes how many rows are older than the chain's start.
pub(crate) async fn note_not_compared(
    snapshot: &mut Snapshot,
    start: i64,
    verification: &mut Verification,
) -> Result<(), Error> {
    let mut older = async |table: &str| {
        let text = format!("SELECT count(*) AS count FROM {table} WHERE seq <= $1");
        count(snapshot, Statement::new("count rows before the chain's start", text).bind(start)).await
    };
    let (execs, approvals) = (older("sandbox_execs").await?, older("approvals").await?);
    if execs + approvals > 0 {
        let (execs, approvals) = (execs.unsigned_abs(), approvals.unsigned_abs());
        verification.note(Note::NotCompared { execs, approvals, start });
    }
    Ok(())
}

/// The stored switch of path control.
pub(crate) async fn path_control(snapshot: &mut Snapshot) -> Result<bool, Error> {
    let row = snapshot.row(Statement::new("read whether paths are controlled", SWITCH)).await?;
    Ok(read_switch(row.as_ref())?.is_on())
}

async fn count(snapshot: &mut Snapshot, query: Statement) -> Result<i64, Error> {
    let row = snapshot.row(query).await?;
    row.map_or(Ok(0), |row| row.read("audit", "count", |row| row.get("count")))
}
