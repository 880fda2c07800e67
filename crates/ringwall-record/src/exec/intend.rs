//! Records the intent of an exec before it runs, the start of a waiting exec, and the policy that
//! an exec runs under.
//!
//! If the intent is not on disk, nothing may run. An exec that ended while it waited cannot start.

use ringwall_ids::ExecId;
use serde_json::{Value as Json, json};

use crate::audit::entry::{Draft, read_digest};
use crate::db::driver::Row;
use crate::db::statement::{Statement, Value, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::rows::{IntentResult, NewExec, Start};
use crate::exec::status::Status;
use crate::exec::{columns, columns::name};
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

impl Store {
    /// Records an exec that is about to run, or a denied one with its outcome. Of several intents
    /// of one caller with the same idempotency key, also concurrent ones, one is recorded; the
    /// others get its id. The operation is queued when this returns, before the future is polled.
    pub fn intend(&self, exec: &NewExec) -> impl Future<Output = Result<IntentResult, Error>> + Send + use<> {
        let exec_id = exec.exec_id.clone();
        let intent = Intent::new(exec);
        let intending = intent.map(|intent| self.submit(async move |ledger| intent.record(ledger).await));
        async move { intending?.await?.ok_or(Error::ExecIdTaken(exec_id)) }
    }

    /// The exec for which the caller has used this idempotency key, and the digest of its request.
    pub async fn find_by_key(&self, caller: &str, key: &str) -> Result<Option<(ExecId, Digest)>, Error> {
        check_text("idempotency_key", key)?;
        self.readers().row(look_for_key(caller, key)).await?.as_ref().map(read_known).transpose()
    }

    /// Records that a waiting exec starts. After an error it must not start.
    pub async fn begin(&self, exec_id: &ExecId, started_at: Timestamp) -> Result<(), Error> {
        let id = exec_id.clone();
        match self.submit(async move |ledger| begin(ledger, &id, started_at).await).await? {
            Begun::Running => Ok(()),
            Begun::NotWaiting(status) => Err(Error::NotWaiting { exec_id: exec_id.clone(), status }),
            Begun::Unknown => Err(Error::UnknownExec(exec_id.clone())),
        }
    }

    /// Puts a running exec back to AWAITING_APPROVAL, when the decision right before the creation
    /// of its box finds that it needs an approval. Fails if the exec is not running.
    pub async fn return_to_approval(&self, exec_id: &ExecId) -> Result<(), Error> {
        let id = exec_id.clone();
        let returned = self.submit(async move |ledger| {
            let text = "UPDATE sandbox_execs SET status = 'AWAITING_APPROVAL', started_at = NULL \
                        WHERE exec_id = $1 AND status = 'RUNNING'";
            ledger.execute(Statement::new("return an exec to AWAITING_APPROVAL", text).bind(id.as_str())).await
        });
        if returned.await? == 1 { Ok(()) } else { Err(Error::UnknownExec(exec_id.clone())) }
    }

    /// Records the policy that an exec runs under, if it differs from the policy of its intent:
    /// after an approval, or because settings or allowed paths changed while the exec waited. After
    /// an error the exec must not run.
    ///
    /// An intent never changes, so this policy has a table of its own. Reads of the exec return it
    /// in place of the intent's policy.
    pub async fn record_policy(&self, exec: &NewExec, snapshot: &Json, at: Timestamp) -> Result<(), Error> {
        let text = snapshot.to_string();
        check_text("policy_snapshot", &text)?;
        let detail = json!({
            "policy": snapshot["version"],
            "path_control": snapshot["path_control"],
            "when_disabled": snapshot["when_disabled"],
            "paths": snapshot["paths"],
            "digest": Digest::of(text.as_bytes()).to_string(),
        });
        let draft = Draft::new(at, "ringwall", "exec.policy", &exec.exec_id, detail)
            .owned_by(Some(&exec.user_id), Some(&exec.agent_id));
        let exec_id = exec.exec_id.clone();
        self.submit(async move |ledger| {
            let insertion = "INSERT INTO exec_policies (exec_id, snapshot) VALUES ($1, $2) \
                             ON CONFLICT (exec_id) DO UPDATE SET snapshot = excluded.snapshot";
            let insertion = Statement::new("record the policy of an exec", insertion);
            ledger.execute(insertion.bind(exec_id.as_str()).bind(text.as_str())).await?;
            ledger.append(draft.clone());
            Ok(())
        })
        .await
    }
}

struct Intent {
    started_at: Option<Timestamp>,
    intent: Vec<Value>,
    first: Vec<Value>,
    draft: Draft,
    /// The caller and its idempotency key.
    key: Option<(String, String)>,
}

impl Intent {
    fn new(exec: &NewExec) -> Result<Self, Error> {
        let (intent, first) = (columns::intent_values(exec)?, columns::first_values(exec));
        let started_at = match exec.start {
            Start::Running { started_at } => Some(started_at),
            Start::Queued | Start::AwaitingApproval | Start::Denied(_) => None,
        };
        let key = exec.idempotency.as_ref().map(|idempotency| (exec.caller.clone(), idempotency.key.clone()));
        Ok(Self { started_at, draft: draft(exec, &intent, &first), intent, first, key })
    }

    /// `None` if the exec id is taken.
    async fn record(&self, ledger: &mut Ledger<'_>) -> Result<Option<IntentResult>, Error> {
        let insertion = Statement::new("record an intent", columns::INSERT.as_str())
            .bind(ledger.next())
            .bind(self.started_at)
            .bind_all(self.intent.iter().cloned())
            .bind_all(self.first.iter().cloned());
        if ledger.execute(insertion).await? == 1 {
            ledger.append(self.draft.clone());
            return Ok(Some(IntentResult::Recorded));
        }
        let Some((caller, key)) = &self.key else { return Ok(None) };
        let row = ledger.row(look_for_key(caller, key)).await?;
        let known = row.as_ref().map(read_known).transpose()?;
        Ok(known.map(|(exec_id, body_digest)| IntentResult::Known { exec_id, body_digest }))
    }
}

/// The digest covers the intent's columns; for a denied exec, which has only this entry, also those
/// of the outcome.
fn draft(exec: &NewExec, intent: &[Value], first: &[Value]) -> Draft {
    let (action, reason, digest) = match &exec.start {
        Start::Denied(reason) => {
            let digest = columns::intent_digest(intent.iter().chain(first));
            (columns::DENIED_ACTION, Some(reason), digest)
        }
        Start::Queued | Start::AwaitingApproval | Start::Running { .. } => {
            (columns::INTENT_ACTION, None, columns::intent_digest(intent))
        }
    };
    let detail = json!({
        "status": exec.start.status(),
        "project_id": exec.project_id,
        "skill_id": exec.skill_id,
        "backend": exec.backend,
        "cmd": exec.cmd,
        "policy": exec.policy_snapshot.get("version"),
        "error_reason": reason,
        "from": exec.from,
    });
    Draft::new(exec.created_at, &exec.caller, action, &exec.exec_id, detail)
        .owned_by(Some(&exec.user_id), Some(&exec.agent_id))
        .with_digest(Some(digest))
}

fn look_for_key(caller: &str, key: &str) -> Statement {
    let text = "SELECT exec_id, body_digest FROM sandbox_execs WHERE caller = $1 AND idempotency_key = $2";
    Statement::new("look up an idempotency key", text).bind(caller).bind(key)
}

fn read_known(row: &Row) -> Result<(ExecId, Digest), Error> {
    row.read("sandbox_execs", "exec_id", |row| Ok((name(row, "exec_id")?, read_digest(row, "body_digest")?)))
}

enum Begun {
    Running,
    NotWaiting(Status),
    Unknown,
}

async fn begin(ledger: &mut Ledger<'_>, exec_id: &ExecId, started_at: Timestamp) -> Result<Begun, Error> {
    let text = "UPDATE sandbox_execs SET status = 'RUNNING', started_at = $1 \
                WHERE exec_id = $2 AND status IN ('QUEUED', 'AWAITING_APPROVAL')";
    let update = Statement::new("start an exec", text).bind(started_at).bind(exec_id.as_str());
    if ledger.execute(update).await? == 1 {
        return Ok(Begun::Running);
    }
    Ok(status_of(ledger, exec_id).await?.map_or(Begun::Unknown, Begun::NotWaiting))
}

/// The exec's status as this transaction sees it.
pub(crate) async fn status_of(ledger: &mut Ledger<'_>, exec_id: &ExecId) -> Result<Option<Status>, Error> {
    let text = "SELECT exec_id, status FROM sandbox_execs WHERE exec_id = $1";
    let row = ledger.row(Statement::new("read an exec's status", text).bind(exec_id.as_str())).await?;
    row.map(|row| row.read("sandbox_execs", "exec_id", |row| name(row, "status"))).transpose()
}
