//! `/api/run`: runs code in a session. A refusal, an expired approval and a timeout are 200 with
//! `success: false`; only a request that cannot be accepted is an error.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_risk::Locale;
use ringwall_service::{Bundle, CodeRan, CodeRequest, ExecId, Language, OnBusy, Status};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::risk::RiskView;
use crate::http::transport::access::Caller;
use crate::http::transport::body::JsonBody;
use crate::http::transport::problem::Problem;

/// Up to this size serializing is faster than moving the runtime's other tasks to another thread.
const MAX_INLINE_JSON_BYTES: usize = 16 * 1024;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBody {
    /// All runs of a session share its files. An unknown session is created
    session_id: String,
    /// At most 1 MiB
    code: String,
    #[serde(default)]
    language: Language,
    /// Timeout in seconds, 1 to 300; default 30
    timeout: Option<u64>,
    /// `native`, `docker`, `gvisor` or `aio`. It may be stronger than the backend that the policy
    /// demands, not weaker
    backend: Option<String>,
    /// Memory limit in MiB; default 512
    max_memory_mb: Option<u64>,
    /// Limit of each output stream in bytes; default 10 MiB
    max_output_bytes: Option<u64>,
    /// Files to write into the session's workspace before the run
    #[serde(default)]
    files: Vec<RunFile>,
    /// Runs the code in an interpreter that keeps its variables for later runs with the same id.
    /// Python and JavaScript only; a new id creates a context
    context_id: Option<String>,
    #[serde(default)]
    on_busy: WhenBusy,
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
    /// `false`: respond with 202 as soon as the exec is recorded; default `true`
    wait: Option<bool>,
}

/// If another run uses the session's box: `wait` for it (default), or `fail` with 409
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WhenBusy {
    #[default]
    Wait,
    Fail,
}

impl From<WhenBusy> for OnBusy {
    fn from(busy: WhenBusy) -> Self {
        match busy {
            WhenBusy::Wait => OnBusy::Wait,
            WhenBusy::Fail => OnBusy::Fail,
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunFile {
    /// Path relative to the session's workspace
    path: String,
    content: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunAnswer {
    success: bool,
    stdout: String,
    stderr: String,
    /// -1 if the code never ran or did not exit by itself
    exit_code: i32,
    /// Why `success` is false
    error: Option<String>,
    /// Backend of the box: `native`, `docker`, `gvisor` or `aio`
    sandbox_type: String,
    execution_time_ms: u64,
    /// New files, relative to the session's workspace
    files_created: Vec<String>,
    /// `false` if the new files are unknown, because the session has more than 20,000 files or
    /// could not be read
    files_created_complete: bool,
    risk: RiskView,
    /// With `context_id`: the displayed values, each as an object of MIME types and forms. The
    /// value of the last expression is one; an assignment has none
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    results: Option<Vec<Bundle>>,
    /// The exec that ended. If an approver changed the code, the exec of the changed code
    #[schema(value_type = String)]
    exec_id: ExecId,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunBegun {
    #[schema(value_type = String)]
    exec_id: ExecId,
    status: Status,
}

impl RunAnswer {
    fn new(result: CodeRan, locale: Locale) -> Self {
        RunAnswer {
            success: result.success,
            stdout: result.stdout,
            stderr: result.stderr,
            exit_code: result.exit_code,
            error: result.error,
            sandbox_type: result.sandbox_type,
            execution_time_ms: result.execution_time_ms,
            files_created_complete: result.files_created.is_some(),
            files_created: result.files_created.unwrap_or_default(),
            risk: RiskView::new(&result.assessment, locale),
            results: result.results,
            exec_id: result.exec_id,
        }
    }
}

#[utoipa::path(post, path = "/api/run", tag = "run", operation_id = "code", request_body = RunBody,
    params(("accept-language" = Option<String>, Header, description = "`zh` for messages in Chinese")),
    responses(
        (status = 200, description = "The code has ended, or did not run; see `success` and `error`", body = RunAnswer),
        (status = 202, description = "With `wait: false`: the code runs or waits for an approval", body = RunBegun),
        (status = 403, description = "A requested limit exceeds the policy, or a path leaves the session (`PathTraversal`)"),
        (status = 409, description = "Another run uses the session's box, and `on_busy` is `fail`"),
        (status = 503, description = "The demanded or requested backend is not available (`backend_unavailable`)"),
    ))]
pub(crate) async fn code(
    by: Caller,
    headers: HeaderMap,
    JsonBody(body): JsonBody<RunBody>,
) -> Result<Response, Problem> {
    let locale = locale(&headers);
    let request = CodeRequest {
        session_id: body.session_id,
        user_id: body.user_id,
        agent_id: body.agent_id,
        code: body.code,
        language: body.language,
        timeout_s: body.timeout,
        backend: body.backend,
        max_memory_mb: body.max_memory_mb,
        max_output_bytes: body.max_output_bytes,
        files: body.files.into_iter().map(|file| (file.path, file.content.into_bytes())).collect(),
        context_id: body.context_id,
        on_busy: body.on_busy.into(),
    };
    run(&by, request, Waiting::of(body.wait), locale).await
}

/// The moment of the response: the end of the exec, or its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Yes,
    No,
}

impl Waiting {
    /// `wait` of a request; callers wait by default.
    pub(crate) fn of(wait: Option<bool>) -> Self {
        if wait == Some(false) { Waiting::No } else { Waiting::Yes }
    }
}

/// Runs code and responds when it has ended, or at once with 202.
pub(crate) async fn run(
    by: &Caller,
    request: CodeRequest,
    waiting: Waiting,
    locale: Locale,
) -> Result<Response, Problem> {
    if waiting == Waiting::No {
        let begun = by.service.begin_code(&by.principal, request).await.map_err(Problem::from_session_error)?;
        let begun = RunBegun { exec_id: begun.exec_id, status: begun.status };
        return Ok((StatusCode::ACCEPTED, Json(begun)).into_response());
    }
    let result = by.service.run_code(&by.principal, request, locale).await.map_err(Problem::from_session_error)?;
    let result_bytes =
        result.results.iter().flatten().flat_map(Bundle::forms).map(|(mime, form)| mime.len() + form.len());
    let is_small = result.stdout.len() + result.stderr.len() + result_bytes.sum::<usize>() <= MAX_INLINE_JSON_BYTES;
    let answer = || Json(RunAnswer::new(result, locale)).into_response();
    // Serializing megabytes would block the runtime's other tasks.
    Ok(if is_small { answer() } else { tokio::task::block_in_place(answer) })
}

/// The language of messages, by `Accept-Language`.
pub(crate) fn locale(headers: &HeaderMap) -> Locale {
    let languages = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    Locale::of_header(languages.unwrap_or_default())
}
