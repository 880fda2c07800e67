//! `/api/run`: a piece of code in a session. A refusal, an expired question and a time limit are answers like any other; only
//! what cannot be run at all is a problem.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_policy::Locale;
use ringwall_service::{Bundle, CodeRan, CodeRequest, ExecId, Language, OnBusy, Principal, Status};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::risk::RiskView;
use crate::http::Door;
use crate::http::transport::body::{read_json, shape};
use crate::http::transport::problem::Problem;

/// So much becomes JSON in less time than it takes to tell another thread of it.
const SMALL: usize = 16 * 1024;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunBody {
    /// Runs of one session share their files
    session_id: String,
    /// At most 1 MiB
    code: String,
    #[serde(default)]
    language: Language,
    /// Seconds, 1 to 300; 30 unless said
    timeout: Option<u64>,
    /// `native`, `docker`, `gvisor` or `aio`: a stronger one than is demanded, never a weaker one
    backend: Option<String>,
    /// 512 unless said
    max_memory_mb: Option<u64>,
    /// Of each stream; 10 MiB unless said
    max_output_bytes: Option<u64>,
    /// Written before it runs
    #[serde(default)]
    files: Vec<RunFile>,
    /// An interpreter that stays, with its variables, for the next run of this session; python or javascript
    context_id: Option<String>,
    #[serde(default)]
    on_busy: WhenBusy,
    /// `default` unless said
    agent_id: Option<String>,
    /// For an owner or operator: whose session; `default` unless said
    user_id: Option<String>,
    /// `false`: answer at once, whatever becomes of it
    wait: Option<bool>,
}

/// Where somebody else uses the session's box: `wait` for it, or `fail` with 409; `wait` unless said
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
    /// Relative to the session's workspace
    path: String,
    content: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunAnswer {
    success: bool,
    stdout: String,
    stderr: String,
    /// -1 where it never ran, or was ended
    exit_code: i32,
    /// Why it is no success
    error: Option<String>,
    /// Who made its box: `native`, `docker`, `gvisor` or `aio`
    sandbox_type: String,
    execution_time_ms: u64,
    /// Relative to the session's workspace
    files_created: Vec<String>,
    /// `false` where it is not known which files it made: the session has more than 20,000, or could not be looked at
    files_created_complete: bool,
    risk: RiskView,
    /// In a context: what it showed, each in several forms by their MIME types. The value of a last expression; none of an
    /// assignment
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    results: Option<Vec<Bundle>>,
    /// The exec that ended: where a person changed the code, that of the changed one
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
    fn new(ran: CodeRan, locale: Locale) -> Self {
        RunAnswer {
            success: ran.success,
            stdout: ran.stdout,
            stderr: ran.stderr,
            exit_code: ran.exit_code,
            error: ran.error,
            sandbox_type: ran.sandbox_type,
            execution_time_ms: ran.execution_time_ms,
            files_created_complete: ran.files_created.is_some(),
            files_created: ran.files_created.unwrap_or_default(),
            risk: RiskView::new(&ran.assessment, locale),
            results: ran.results,
            exec_id: ran.exec_id,
        }
    }
}

#[utoipa::path(post, path = "/api/run", tag = "run", operation_id = "code", request_body = RunBody,
    params(("accept-language" = Option<String>, Header, description = "`zh` for sentences in Chinese")),
    responses(
        (status = 200, description = "how it ended, or why it did not run", body = RunAnswer),
        (status = 202, description = "it goes on, or waits for a person", body = RunBegun),
        (status = 403, description = "more is asked for than is allowed, or a path leads out (`PathTraversal`)"),
        (status = 409, description = "somebody else uses the session's box, and `on_busy` is `fail`"),
        (status = 503, description = "a backend that is demanded or asked for is not there (`backend_unavailable`)"),
    ))]
pub(crate) async fn code(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let locale = locale(&headers);
    let body: RunBody = shape(read_json(body, door.largest_body).await?)?;
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
    run(&door, &principal, request, Waiting::of(body.wait), locale).await
}

/// Whether somebody waits for the ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Yes,
    No,
}

impl Waiting {
    /// They do unless they say otherwise.
    pub(crate) fn of(said: Option<bool>) -> Self {
        if said == Some(false) { Waiting::No } else { Waiting::Yes }
    }
}

/// Runs it and answers, at once or with its ending.
pub(crate) async fn run(
    door: &Door,
    principal: &Principal,
    request: CodeRequest,
    waiting: Waiting,
    locale: Locale,
) -> Result<Response, Problem> {
    if waiting == Waiting::No {
        let begun = door.service.begin_code(principal, request).await.map_err(Problem::of_session)?;
        let begun = RunBegun { exec_id: begun.exec_id, status: begun.status };
        return Ok((StatusCode::ACCEPTED, Json(begun)).into_response());
    }
    let ran = door.service.run_code(principal, request, locale).await.map_err(Problem::of_session)?;
    let shown = ran.results.iter().flatten().flat_map(Bundle::forms).map(|(mime, form)| mime.len() + form.len());
    let is_small = ran.stdout.len() + ran.stderr.len() + shown.sum::<usize>() <= SMALL;
    let answer = || Json(RunAnswer::new(ran, locale)).into_response();
    // Megabytes take a while to become JSON.
    Ok(if is_small { answer() } else { tokio::task::block_in_place(answer) })
}

/// In whose language sentences are told.
pub(crate) fn locale(headers: &HeaderMap) -> Locale {
    let asked = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    Locale::of_header(asked.unwrap_or_default())
}
