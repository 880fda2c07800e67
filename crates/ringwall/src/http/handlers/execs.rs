//! `/sandbox/execs`: creates, lists, shows and cancels execs.
//!
//! Once an exec is recorded it runs independently of the request: a client that disconnects loses
//! the response only.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{OriginalUri, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ringwall_service::{
    ExecFilter, ExecId, ExecRequest, ExecSummary, ExecView, Limit, NetworkView, Page, Reason, Status, Submitted,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{
    JsonResult, PathParam, Query, deserialize, idempotency_key, prefers_async, read_json,
};
use crate::http::transport::problem::Problem;

const DEFAULT_PAGE: u64 = 50;
const NEXT_CURSOR: &str = "x-next-cursor";

/// A command to run in a project
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewExec {
    /// May be absent if `task_ref.conversation_id` is given, which is then the project id
    project_id: Option<String>,
    /// Skill whose manifest limits this exec
    skill_id: Option<String>,
    exec: NewCommand,
    #[serde(default)]
    inputs: Vec<NewInput>,
    /// Tighter limits for this exec, for example `{"timeout_ms": 5000}`. A looser limit is rejected
    /// with POLICY_DENIED
    #[schema(value_type = Option<Object>)]
    policy_overrides: Option<Value>,
    task_ref: Option<TaskRef>,
    /// `native`, `docker` or `gvisor`. Default: `native`, or `docker` for a skill that needs it
    backend: Option<String>,
    /// User of the workspace. Default: the token's own user; `default` for owner and operator
    /// tokens
    user_id: Option<String>,
    /// Agent of the workspace. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCommand {
    /// `shell` or `python`
    kind: String,
    /// `bash` for kind `shell`, `python` for kind `python`
    command: String,
    /// `["-lc", script]` for `bash`; `["-c", code]` or a script under `/workspace/inputs/` for
    /// `python`
    #[serde(default)]
    args: Vec<String>,
    /// Working directory, `work` or `inputs` or a directory below; default `work`
    cwd: Option<String>,
    /// Environment variables. Only their names are recorded
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, String>)]
    env: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInput {
    /// Path relative to `inputs/`
    path: String,
    content: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskRef {
    task_id: Option<String>,
    conversation_id: Option<String>,
}

/// Result of an exec
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecAnswer {
    exec_id: ExecId,
    status: Status,
    /// Exit code of the command; null if it did not exit by itself
    exit_code: Option<i32>,
    /// Directory of the artifacts, relative to the workspace
    artifacts_dir: String,
    /// Name of the artifact with standard output
    stdout_path: &'static str,
    /// Name of the artifact with standard error
    stderr_path: &'static str,
    stdout_truncated: bool,
    stderr_truncated: bool,
    /// Why the exec did not run or was ended; null if the command exited by itself
    error_reason: Option<Reason>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    task_id: Option<String>,
    project_id: Option<String>,
    /// Only execs in this state, for example `RUNNING`
    status: Option<String>,
    /// Page size; default 50
    limit: Option<u64>,
    /// `X-Next-Cursor` of the previous page
    cursor: Option<String>,
}

#[utoipa::path(post, path = "/sandbox/execs", tag = "execs", request_body = NewExec,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 printable ASCII characters. A second request with the same key and body returns the same exec; with another body it is 409"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: respond with 202 as soon as the exec is recorded"),
    ),
    responses((status = 200, description = "The exec has ended, successfully or not; see `status`", body = ExecAnswer), (status = 202, description = "The exec is recorded and not ended yet", body = ExecAnswer)))]
pub(crate) async fn create(
    State(state): State<AppState>,
    by: Caller,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = read_json(body, state.max_body_bytes).await?;
    let idempotency = idempotency_key(&headers, uri.path(), &body)?;
    let request = ExecRequest { idempotency, ..exec_request(deserialize(body)?)? };
    let submitted = by.service.submit(&by.principal, request).await?;
    respond(&by, submitted, &headers).await
}

/// Waits until the exec has ended, or responds with 202 if the caller prefers that.
pub(crate) async fn respond(by: &Caller, submitted: Submitted, headers: &HeaderMap) -> Result<Response, Problem> {
    if prefers_async(headers) {
        let view = by.service.exec(&by.principal, &submitted.exec_id).await?;
        let mut response = (StatusCode::ACCEPTED, Json(ExecAnswer::from(view))).into_response();
        response.headers_mut().insert("preference-applied", HeaderValue::from_static("respond-async"));
        return Ok(response);
    }
    let view = by.service.finished(&by.principal, &submitted.exec_id).await?;
    match view.failure() {
        Some(failure) => Err(Problem::from(failure).with_detail("exec_id", view.summary.exec_id.as_str())),
        None => Ok(Json(ExecAnswer::from(view)).into_response()),
    }
}

fn exec_request(body: NewExec) -> Result<ExecRequest, Problem> {
    // The values are typed `Value`: serde's error about a wrong type would contain the value.
    let env = body.exec.env.into_iter().map(|(key, value)| match value {
        Value::String(text) => Ok((key, ringwall_policy::Secret::new(text))),
        _ => Err(Problem::invalid(format!("exec.env.{key}: must be a string"))),
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

#[utoipa::path(get, path = "/sandbox/execs", tag = "execs", params(ListQuery),
    responses((status = 200, description = "The execs that the caller may see, newest first. The header `X-Next-Cursor` has the cursor of the next page", body = Vec<ExecSummary>)))]
pub(crate) async fn list(by: Caller, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let filter =
        ExecFilter { task_id: query.task_id, project_id: query.project_id, status: parse(query.status.as_deref())? };
    let limit = Limit::nearest(query.limit.unwrap_or(DEFAULT_PAGE));
    let page = by.service.execs(&by.principal, filter, limit, parse(query.cursor.as_deref())?).await?;
    Ok(paged(page))
}

/// A JSON array, with the cursor of the next page in the header `X-Next-Cursor`.
pub(crate) fn paged<T: Serialize>(page: Page<T>) -> Response {
    let mut response = Json(page.items).into_response();
    if let Some(next) = page.next.and_then(|next| HeaderValue::from_str(&next.to_string()).ok()) {
        response.headers_mut().insert(NEXT_CURSOR, next);
    }
    response
}

/// Parses a query parameter.
pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(value: Option<&str>) -> Result<Option<T>, Problem> {
    value.map(|value| value.parse().map_err(|error| Problem::invalid(format!("{error}")))).transpose()
}

/// The size of a page. Too large values are reduced to the maximum.
pub(crate) fn page_limit(limit: Option<u64>, default: u64) -> Result<Limit, Problem> {
    match limit {
        Some(0) => Err(Problem::invalid("limit: at least 1")),
        limit => Ok(Limit::nearest(limit.unwrap_or(default))),
    }
}

/// Parses an exec id. A malformed one is 404.
pub(crate) fn exec_id(text: &str) -> Result<ExecId, Problem> {
    text.parse().map_err(|_| Problem::not_found("there is no exec with that id"))
}

#[utoipa::path(get, path = "/sandbox/execs/{id}", tag = "execs", params(("id" = String, Path)),
    responses((status = 200, description = "All details of the exec", body = ExecView)))]
pub(crate) async fn show(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<ExecView> {
    Ok(Json(by.service.exec(&by.principal, &exec_id(&id)?).await?))
}

#[utoipa::path(delete, path = "/sandbox/execs/{id}", tag = "execs", params(("id" = String, Path)),
    responses((status = 202, description = "The exec was cancelled", body = ExecAnswer), (status = 409, description = "The exec had already ended")))]
pub(crate) async fn cancel(
    by: Caller,
    PathParam(id): PathParam<String>,
) -> Result<(StatusCode, Json<ExecAnswer>), Problem> {
    let view = by.service.cancel(&by.principal, &exec_id(&id)?).await?;
    Ok((StatusCode::ACCEPTED, Json(view.into())))
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/network", tag = "execs", operation_id = "of_exec", params(("id" = String, Path)),
    responses((status = 200, description = "Every connection that the exec's box requested; empty while the exec runs", body = NetworkView)))]
pub(crate) async fn network(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<NetworkView> {
    Ok(Json(by.service.exec_network(&by.principal, &exec_id(&id)?).await?))
}
