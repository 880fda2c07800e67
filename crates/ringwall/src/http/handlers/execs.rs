//! `/sandbox/execs`: asking for an exec, and asking about it.
//!
//! An exec belongs to the server from the moment it is recorded: a client that goes away while it waits loses the answer
//! and nothing else.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, OriginalUri, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ringwall_service::{
    ExecFilter, ExecId, ExecRequest, ExecSummary, ExecView, Idempotency, Limit, Page, Principal, Reason, Status,
    Submitted,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::http::Door;
use crate::http::transport::body::{Named, Words, prefers_async, read_json, repeatable, shape};
use crate::http::transport::problem::Problem;

const DEFAULT_PAGE: u64 = 50;
const NEXT: &str = "x-next-cursor";

/// What is to run, where, and with what.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewExec {
    /// May be absent when `task_ref.conversation_id` is there.
    project_id: Option<String>,
    skill_id: Option<String>,
    exec: NewCommand,
    #[serde(default)]
    inputs: Vec<NewInput>,
    /// Limits that are to be tighter than usual.
    #[schema(value_type = Option<Object>)]
    policy_overrides: Option<Value>,
    task_ref: Option<TaskRef>,
    backend: Option<String>,
    user_id: Option<String>,
    agent_id: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCommand {
    /// `shell` or `python`
    kind: String,
    command: String,
    #[serde(default)]
    args: Vec<String>,
    /// Under `work` or `inputs`; `work` unless said.
    cwd: Option<String>,
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, String>)]
    env: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInput {
    /// Relative to `inputs/`
    path: String,
    content: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskRef {
    task_id: Option<String>,
    conversation_id: Option<String>,
}

/// An exec as its asker is answered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecAnswer {
    exec_id: ExecId,
    status: Status,
    exit_code: Option<i32>,
    artifacts_dir: String,
    stdout_path: &'static str,
    stderr_path: &'static str,
    stdout_truncated: bool,
    stderr_truncated: bool,
    error_reason: Option<Reason>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListWords {
    task_id: Option<String>,
    project_id: Option<String>,
    status: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[utoipa::path(post, path = "/sandbox/execs", tag = "execs", request_body = NewExec,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "the same key and body: the same exec"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: answer at once"),
    ),
    responses((status = 200, description = "it ended", body = ExecAnswer), (status = 202, description = "it goes on", body = ExecAnswer)))]
pub(crate) async fn create(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = read_json(body, door.largest_body).await?;
    let repeatable = repeatable(&headers, uri.path(), &body)?;
    let mut request = order(shape(body)?)?;
    request.idempotency = repeatable.map(|known| Idempotency { key: known.key, body_digest: known.body_digest });
    let submitted = door.service.submit(&principal, request).await?;
    answer(&door, &principal, submitted, &headers).await
}

/// Waits for the ending, unless the caller would rather not.
pub(crate) async fn answer(
    door: &Door,
    principal: &Principal,
    submitted: Submitted,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    if prefers_async(headers) {
        let view = door.service.exec(principal, &submitted.exec_id).await?;
        let mut response = (StatusCode::ACCEPTED, Json(ExecAnswer::from(view))).into_response();
        response.headers_mut().insert("preference-applied", HeaderValue::from_static("respond-async"));
        return Ok(response);
    }
    let view = door.service.finished(principal, &submitted.exec_id).await?;
    match view.failure() {
        Some(failure) => Err(Problem::from(failure).with_fact("exec_id", view.summary.exec_id.as_str())),
        None => Ok(Json(ExecAnswer::from(view)).into_response()),
    }
}

fn order(body: NewExec) -> Result<ExecRequest, Problem> {
    // Read as any value first, so that the message about a wrong one names its key and never shows it.
    let env = body.exec.env.into_iter().map(|(key, value)| match value {
        Value::String(text) => Ok((key, ringwall_policy::Secret::new(text))),
        _ => Err(Problem::invalid(format!("exec.env.{key}: not a text"))),
    });
    let task = body.task_ref.unwrap_or(TaskRef { task_id: None, conversation_id: None });
    Ok(ExecRequest {
        user_id: body.user_id,
        agent_id: body.agent_id,
        project_id: body.project_id,
        skill_id: body.skill_id,
        kind: body.exec.kind,
        command: body.exec.command,
        args: body.exec.args,
        cwd: body.exec.cwd,
        env: env.collect::<Result<_, _>>()?,
        inputs: body.inputs.into_iter().map(|input| (input.path, input.content.into_bytes())).collect(),
        overrides: body.policy_overrides,
        task_id: task.task_id,
        conversation_id: task.conversation_id,
        backend: body.backend,
        idempotency: None,
    })
}

impl From<ExecView> for ExecAnswer {
    fn from(view: ExecView) -> Self {
        ExecAnswer {
            exec_id: view.summary.exec_id,
            status: view.summary.status,
            exit_code: view.summary.exit_code,
            artifacts_dir: view.summary.artifacts_path,
            stdout_path: "stdout.txt",
            stderr_path: "stderr.txt",
            stdout_truncated: view.stdout_truncated,
            stderr_truncated: view.stderr_truncated,
            error_reason: view.error_reason,
        }
    }
}

#[utoipa::path(get, path = "/sandbox/execs", tag = "execs", params(ListWords),
    responses((status = 200, description = "newest first; the next page's cursor is in X-Next-Cursor", body = Vec<ExecSummary>)))]
pub(crate) async fn list(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Words(words): Words<ListWords>,
) -> Result<Response, Problem> {
    let filter =
        ExecFilter { task_id: words.task_id, project_id: words.project_id, status: parse(words.status.as_deref())? };
    let limit = Limit::nearest(words.limit.unwrap_or(DEFAULT_PAGE));
    let page = door.service.execs(&principal, filter, limit, parse(words.cursor.as_deref())?).await?;
    Ok(paged(page))
}

/// A list as an array, with the way to the rest of it in a header.
pub(crate) fn paged<T: Serialize>(page: Page<T>) -> Response {
    let mut response = Json(page.items).into_response();
    if let Some(next) = page.next.and_then(|next| HeaderValue::from_str(&next.to_string()).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    response
}

/// A word of the query that has a form of its own.
pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(word: Option<&str>) -> Result<Option<T>, Problem> {
    word.map(|word| word.parse().map_err(|error| Problem::invalid(format!("{error}")))).transpose()
}

/// What is no id names nothing.
pub(crate) fn exec_id(text: &str) -> Result<ExecId, Problem> {
    text.parse().map_err(|_| Problem::not_found("there is no exec of that id"))
}

#[utoipa::path(get, path = "/sandbox/execs/{id}", tag = "execs", params(("id" = String, Path)),
    responses((status = 200, description = "everything that is known of it", body = ExecView)))]
pub(crate) async fn show(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
) -> Result<Json<ExecView>, Problem> {
    Ok(Json(door.service.exec(&principal, &exec_id(&id)?).await?))
}

#[utoipa::path(delete, path = "/sandbox/execs/{id}", tag = "execs", params(("id" = String, Path)),
    responses((status = 202, description = "it is cancelled", body = ExecAnswer), (status = 409, description = "it had ended")))]
pub(crate) async fn cancel(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
) -> Result<(StatusCode, Json<ExecAnswer>), Problem> {
    let view = door.service.cancel(&principal, &exec_id(&id)?).await?;
    Ok((StatusCode::ACCEPTED, Json(view.into())))
}
