//! Records the outcome of an exec, exactly once.
//!
//! The UPDATE matches only an exec without an outcome, in the transaction that appends the audit
//! entry; so the first outcome stays. Execs that a crash left without one become LOST at the next
//! start.

use ringwall_ids::{AgentId, ExecId, UserId};
use serde_json::json;

use crate::audit::entry::Draft;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, Value};
use crate::error::Error;
use crate::exec::intend::status_of;
use crate::exec::rows::{ExecOutcome, FinishResult, NewExec, Reason, StoredOutput};
use crate::exec::status::{FinalStatus, Status};
use crate::exec::{columns, columns::name};
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

/// Number of execs that one transaction marks as lost; other operations can run in between.
const MAX_EXECS: i64 = 256;

impl Store {
    /// Records the outcome of an exec. The operation is queued when this returns, before the future
    /// is polled. The answer comes after the commit and can precede the sync to disk
    /// ([`Store::submit_soon`]): after a power cut the outcome may be missing, and the exec becomes
    /// LOST.
    pub fn finish<W: Into<ExecOwner>>(
        &self,
        exec: W,
        outcome: &ExecOutcome,
    ) -> impl Future<Output = Result<FinishResult, Error>> + Send + use<W> {
        let owner = exec.into();
        let exec_id = owner.exec_id.clone();
        let outcome = columns::outcome_values(outcome).map(|values| {
            let draft = draft(&owner, outcome, &values, columns::OUTCOME_ACTION);
            self.submit_soon(async move |ledger| record(ledger, &owner, &values, &draft).await)
        });
        async move { outcome?.await?.ok_or(Error::UnknownExec(exec_id)) }
    }

    /// Marks all execs that were recorded before this call and have no outcome as LOST, and returns
    /// them. For the start of a server. Never call it while another server uses the same database.
    pub async fn mark_unfinished_lost(&self, at: Timestamp) -> Result<Vec<ExecId>, Error> {
        let mut lost = Vec::new();
        let mut through = None;
        loop {
            let (some, last) = self.submit(async move |ledger| mark_some_lost(ledger, at, through).await).await?;
            through = Some(last);
            if some.is_empty() {
                return Ok(lost);
            }
            lost.extend(some);
        }
    }
}

/// An exec and its owner.
#[derive(Debug, Clone)]
pub struct ExecOwner {
    exec_id: ExecId,
    user_id: UserId,
    agent_id: AgentId,
}

impl From<&NewExec> for ExecOwner {
    fn from(exec: &NewExec) -> Self {
        Self { exec_id: exec.exec_id.clone(), user_id: exec.user_id.clone(), agent_id: exec.agent_id.clone() }
    }
}

/// `None` if this user and agent have no such exec.
async fn record(
    ledger: &mut Ledger<'_>,
    owner: &ExecOwner,
    values: &[Value],
    draft: &Draft,
) -> Result<Option<FinishResult>, Error> {
    if end(ledger, owner, values, || draft.clone()).await? == Update::Done {
        return Ok(Some(FinishResult::Recorded));
    }
    // An exec without an outcome was not matched because it belongs to another user or agent.
    let status = status_of(ledger, &owner.exec_id).await?;
    Ok(status.filter(|status| status.is_ended()).map(FinishResult::AlreadyEnded))
}

/// Marks up to [`MAX_EXECS`] execs as LOST. `through` is the newest entry at the first call: later
/// execs are not lost. Returns the lost execs and this number.
async fn mark_some_lost(
    ledger: &mut Ledger<'_>,
    at: Timestamp,
    through: Option<i64>,
) -> Result<(Vec<ExecId>, i64), Error> {
    let through = through.unwrap_or(ledger.head().seq);
    let text = "SELECT exec_id, user_id, agent_id FROM sandbox_execs \
                WHERE filed = 0 AND ended_at IS NULL AND seq <= $1 ORDER BY seq LIMIT $2";
    let query = Statement::new("list unfinished execs", text);
    let rows = ledger.rows(query.bind(through).bind(MAX_EXECS)).await?;
    let read = |row: &Row| -> Result<ExecOwner, BadColumn> {
        let (user_id, agent_id) = (name(row, "user_id")?, name(row, "agent_id")?);
        Ok(ExecOwner { exec_id: name(row, "exec_id")?, user_id, agent_id })
    };
    let unfinished = rows.iter().map(|row| row.read("sandbox_execs", "exec_id", read));
    let unfinished: Vec<ExecOwner> = unfinished.collect::<Result<_, Error>>()?;
    let outcome = lost(at);
    let values = columns::outcome_values(&outcome)?;
    for owner in &unfinished {
        end(ledger, owner, &values, || draft(owner, &outcome, &values, columns::LOST_ACTION)).await?;
    }
    Ok((unfinished.into_iter().map(|owner| owner.exec_id).collect(), through))
}

fn lost(at: Timestamp) -> ExecOutcome {
    let message = "the server ended before this exec did; whether it had finished is not known";
    ExecOutcome {
        status: FinalStatus::Lost,
        exit_code: None,
        error_reason: Some(Reason { code: Status::Lost.to_string(), message: message.to_owned() }),
        ended_at: at,
        duration_ms: None,
        protections: None,
        stdout: StoredOutput::Complete,
        stderr: StoredOutput::Complete,
        cpu_ms: None,
        max_rss_bytes: None,
    }
}

#[derive(PartialEq, Eq)]
enum Update {
    Done,
    /// It has an outcome already, or does not exist for this owner.
    NoMatch,
}

async fn end(
    ledger: &mut Ledger<'_>,
    owner: &ExecOwner,
    values: &[Value],
    draft: impl FnOnce() -> Draft,
) -> Result<Update, Error> {
    let update = Statement::new("record an outcome", columns::UPDATE_OUTCOME.as_str());
    let ExecOwner { exec_id, user_id, agent_id } = owner;
    let update = update.bind_all(values.iter().cloned());
    let update = update.bind(exec_id.as_str()).bind(user_id.as_str()).bind(agent_id.as_str());
    if ledger.execute(update).await? == 0 {
        return Ok(Update::NoMatch);
    }
    ledger.append(draft());
    Ok(Update::Done)
}

fn draft(owner: &ExecOwner, outcome: &ExecOutcome, values: &[Value], action: &str) -> Draft {
    let detail = json!({
        "status": Status::from(outcome.status),
        "exit_code": outcome.exit_code,
        "duration_ms": outcome.duration_ms,
        "error_reason": outcome.error_reason,
    });
    Draft::new(outcome.ended_at, "ringwall", action, &owner.exec_id, detail)
        .owned_by(Some(&owner.user_id), Some(&owner.agent_id))
        .with_digest(Some(columns::outcome_digest(values)))
}
