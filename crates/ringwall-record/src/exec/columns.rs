//! Converts intents and outcomes to columns of `sandbox_execs` and back.
//!
//! The intent sets one group of columns, the outcome another. Their audit entries contain a digest
//! of the group's stored values, so that verification finds rows that were changed later.

use std::sync::LazyLock;

use serde_json::Value as Json;

use crate::audit::entry::read_optional_digest;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Value, check_indexed, check_number, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::rows::{Exec, ExecOutcome, ExecSummary, Idempotency, NewExec, Reason, Start, StoredOutput};
use crate::exec::status::Status;
use crate::timestamp::Timestamp;

/// Actions of audit entries: a denied exec has one entry, any other one for its intent and one for
/// its outcome.
pub(crate) const INTENT_ACTION: &str = "exec.intent";
pub(crate) const DENIED_ACTION: &str = "exec.denied";
pub(crate) const OUTCOME_ACTION: &str = "exec.outcome";
pub(crate) const LOST_ACTION: &str = "exec.lost";

const INTENT: [&str; 19] = [
    "exec_id",
    "user_id",
    "agent_id",
    "caller",
    "idempotency_key",
    "body_digest",
    "project_id",
    "task_id",
    "conversation_id",
    "skill_id",
    "backend",
    "image",
    "cmd",
    "args",
    "cwd",
    "env_keys",
    "policy_snapshot",
    "created_at",
    "artifacts_path",
];

const OUTCOME: [&str; 10] = [
    "status",
    "exit_code",
    "error_reason",
    "ended_at",
    "duration_ms",
    "protections",
    "stdout_truncated",
    "stderr_truncated",
    "cpu_ms",
    "max_rss_bytes",
];

const SUMMARY: &str = "exec_id, user_id, agent_id, project_id, task_id, conversation_id, skill_id, backend, status, \
                       exit_code, created_at, started_at, ended_at, duration_ms, artifacts_path";

pub(crate) static SELECT_SUMMARY: LazyLock<String> =
    LazyLock::new(|| format!("SELECT seq, {SUMMARY} FROM sandbox_execs"));

/// `applied_policy` is the policy that the exec ran under, NULL if it is that of its intent.
pub(crate) static SELECT_EXEC: LazyLock<String> = LazyLock::new(|| {
    let applied = "(SELECT snapshot FROM exec_policies WHERE exec_policies.exec_id = sandbox_execs.exec_id)";
    let (intent, outcome) = (INTENT.join(", "), OUTCOME.join(", "));
    format!("SELECT seq, started_at, {intent}, {outcome}, {applied} AS applied_policy FROM sandbox_execs")
});

/// All columns of both groups, prefixed with `exec_`, for a join with the audit chain.
pub(crate) static JOINED: LazyLock<String> = LazyLock::new(|| {
    let renamed = INTENT.iter().chain(&OUTCOME).map(|name| format!("exec.{name} AS exec_{name}"));
    renamed.collect::<Vec<_>>().join(", ")
});

/// `ON CONFLICT` has no target: the idempotency key may be used already, or the id.
pub(crate) static INSERT: LazyLock<String> = LazyLock::new(|| {
    let columns = [&["seq", "started_at"], &INTENT[..], &OUTCOME].concat();
    let placeholders: Vec<String> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    let (columns, placeholders) = (columns.join(", "), placeholders.join(", "));
    format!("INSERT INTO sandbox_execs ({columns}, filed) VALUES ({placeholders}, 0) ON CONFLICT DO NOTHING")
});

/// Parameters: the values of the outcome, then exec id, user id and agent id.
pub(crate) static UPDATE_OUTCOME: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<String> = (1..).zip(OUTCOME).map(|(number, name)| format!("{name} = ${number}")).collect();
    let [id, user, agent] = [1, 2, 3].map(|number| columns.len() + number);
    let owner = format!("exec_id = ${id} AND user_id = ${user} AND agent_id = ${agent}");
    format!("UPDATE sandbox_execs SET {} WHERE {owner} AND ended_at IS NULL", columns.join(", "))
});

/// The values of the intent's columns, in their order.
pub(crate) fn intent_values(exec: &NewExec) -> Result<Vec<Value>, Error> {
    for (column, text) in [("caller", &exec.caller), ("project_id", &exec.project_id)] {
        check_indexed(column, text)?;
    }
    for (column, text) in
        [("backend", &exec.backend), ("cmd", &exec.cmd), ("cwd", &exec.cwd), ("artifacts_path", &exec.artifacts_path)]
    {
        check_text(column, text)?;
    }
    let key = exec.idempotency.as_ref().map(|idempotency| &idempotency.key);
    for (column, text) in [("idempotency_key", key), ("task_id", exec.task_id.as_ref())] {
        text.map_or(Ok(()), |text| check_indexed(column, text))?;
    }
    for (column, text) in
        [("conversation_id", &exec.conversation_id), ("skill_id", &exec.skill_id), ("image", &exec.image)]
    {
        text.as_ref().map_or(Ok(()), |text| check_text(column, text))?;
    }
    Ok(vec![
        exec.exec_id.as_str().into(),
        exec.user_id.as_str().into(),
        exec.agent_id.as_str().into(),
        exec.caller.as_str().into(),
        key.cloned().into(),
        exec.idempotency.as_ref().map(|idempotency| idempotency.body_digest).into(),
        exec.project_id.as_str().into(),
        exec.task_id.clone().into(),
        exec.conversation_id.clone().into(),
        exec.skill_id.clone().into(),
        exec.backend.as_str().into(),
        exec.image.clone().into(),
        exec.cmd.as_str().into(),
        Json::from(exec.args.clone()).to_string().into(),
        exec.cwd.as_str().into(),
        Json::from(exec.env_keys.clone()).to_string().into(),
        exec.policy_snapshot.to_string().into(),
        exec.created_at.into(),
        exec.artifacts_path.as_str().into(),
    ])
}

/// The values of the outcome's columns, in their order.
pub(crate) fn outcome_values(outcome: &ExecOutcome) -> Result<Vec<Value>, Error> {
    let number = |column, number: Option<u64>| number.map(|number| check_number(column, number)).transpose();
    Ok(vec![
        Status::from(outcome.status).as_str().into(),
        outcome.exit_code.map(i64::from).into(),
        outcome.error_reason.as_ref().map(reason_text).into(),
        outcome.ended_at.into(),
        number("duration_ms", outcome.duration_ms)?.into(),
        outcome.protections.as_ref().map(Json::to_string).into(),
        i64::from(outcome.stdout == StoredOutput::Truncated).into(),
        i64::from(outcome.stderr == StoredOutput::Truncated).into(),
        number("cpu_ms", outcome.cpu_ms)?.into(),
        number("max_rss_bytes", outcome.max_rss_bytes)?.into(),
    ])
}

/// The first values of the outcome's columns. Only a denied exec has an outcome from the start.
pub(crate) fn first_values(exec: &NewExec) -> Vec<Value> {
    let (reason, ended_at) = match &exec.start {
        Start::Queued | Start::AwaitingApproval | Start::Running { .. } => (None, None),
        Start::Denied(reason) => (Some(reason_text(reason)), Some(exec.created_at)),
    };
    let nothing = Value::Integer(None);
    vec![
        exec.start.status().as_str().into(),
        nothing.clone(),
        reason.into(),
        ended_at.into(),
        nothing.clone(),
        Value::Text(None),
        0.into(),
        0.into(),
        nothing.clone(),
        nothing,
    ]
}

fn reason_text(reason: &Reason) -> String {
    serde_json::json!({ "code": reason.code, "message": reason.message }).to_string()
}

pub(crate) fn intent_digest<'v>(values: impl IntoIterator<Item = &'v Value>) -> Digest {
    Digest::of_fields("ringwall exec intent 1", values)
}

pub(crate) fn outcome_digest<'v>(values: impl IntoIterator<Item = &'v Value>) -> Digest {
    Digest::of_fields("ringwall exec ending 1", values)
}

/// The digest that an entry with this action must contain, computed from the joined row
/// ([`JOINED`]). `None` if the exec does not exist or the action is not about an exec's row.
pub(crate) fn stored_digest(action: &str, row: &Row) -> Result<Option<Digest>, BadColumn> {
    if row.get::<Option<String>>("exec_exec_id")?.is_none() {
        return Ok(None);
    }
    let values = JOINED_NAMES.iter().map(|name| row.value(name)).collect::<Result<Vec<_>, BadColumn>>()?;
    let (intent, outcome) = values.split_at(INTENT.len());
    Ok(match action {
        INTENT_ACTION => Some(intent_digest(intent)),
        DENIED_ACTION => Some(intent_digest(&values)),
        OUTCOME_ACTION | LOST_ACTION => Some(outcome_digest(outcome)),
        _ => None,
    })
}

static JOINED_NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| INTENT.iter().chain(&OUTCOME).map(|name| format!("exec_{name}")).collect());

pub(crate) fn read_summary(row: &Row) -> Result<(i64, ExecSummary), Error> {
    row.read("sandbox_execs", "exec_id", |row| Ok((row.get("seq")?, summary(row)?)))
}

pub(crate) fn read_exec(row: &Row) -> Result<Exec, Error> {
    row.read("sandbox_execs", "exec_id", |row| {
        let key: Option<String> = row.get("idempotency_key")?;
        let body_digest = read_optional_digest(row, "body_digest")?;
        Ok(Exec {
            summary: summary(row)?,
            seq: row.get("seq")?,
            caller: row.get("caller")?,
            idempotency: key.zip(body_digest).map(|(key, body_digest)| Idempotency { key, body_digest }),
            image: row.get("image")?,
            cmd: row.get("cmd")?,
            args: json(row, "args")?,
            cwd: row.get("cwd")?,
            env_keys: json(row, "env_keys")?,
            policy_snapshot: match optional_json(row, "applied_policy")? {
                Some(applied) => applied,
                None => json(row, "policy_snapshot")?,
            },
            protections: optional_json(row, "protections")?,
            error_reason: optional_json(row, "error_reason")?,
            stdout: kept(row, "stdout_truncated")?,
            stderr: kept(row, "stderr_truncated")?,
            cpu_ms: count(row, "cpu_ms")?,
            max_rss_bytes: count(row, "max_rss_bytes")?,
        })
    })
}

fn summary(row: &Row) -> Result<ExecSummary, BadColumn> {
    let at = |column| Ok(row.get::<Option<i64>>(column)?.map(Timestamp::from_milliseconds));
    let exit_code: Option<i64> = row.get("exit_code")?;
    let exit_code = exit_code.map(i32::try_from).transpose().map_err(|error| BadColumn::new("exit_code", error))?;
    Ok(ExecSummary {
        exec_id: name(row, "exec_id")?,
        user_id: name(row, "user_id")?,
        agent_id: name(row, "agent_id")?,
        project_id: row.get("project_id")?,
        task_id: row.get("task_id")?,
        conversation_id: row.get("conversation_id")?,
        skill_id: row.get("skill_id")?,
        backend: row.get("backend")?,
        status: name(row, "status")?,
        exit_code,
        created_at: Timestamp::from_milliseconds(row.get("created_at")?),
        started_at: at("started_at")?,
        ended_at: at("ended_at")?,
        duration_ms: count(row, "duration_ms")?,
        artifacts_path: row.get("artifacts_path")?,
    })
}

/// Parses a text column into its type.
pub(crate) fn name<T>(row: &Row, column: &'static str) -> Result<T, BadColumn>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    row.get::<String>(column)?.parse().map_err(|error| BadColumn::new(column, error))
}

pub(crate) fn json<T: serde::de::DeserializeOwned>(row: &Row, column: &'static str) -> Result<T, BadColumn> {
    serde_json::from_str(&row.get::<String>(column)?).map_err(|error| BadColumn::new(column, error))
}

pub(crate) fn optional_json<T: serde::de::DeserializeOwned>(
    row: &Row,
    column: &'static str,
) -> Result<Option<T>, BadColumn> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| BadColumn::new(column, error))
}

fn count(row: &Row, column: &'static str) -> Result<Option<u64>, BadColumn> {
    let number: Option<i64> = row.get(column)?;
    number.map(u64::try_from).transpose().map_err(|error| BadColumn::new(column, error))
}

fn kept(row: &Row, column: &'static str) -> Result<StoredOutput, BadColumn> {
    Ok(if row.get::<i64>(column)? == 0 { StoredOutput::Complete } else { StoredOutput::Truncated })
}
