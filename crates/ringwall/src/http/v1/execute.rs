//! Runs commands on an agent's files: a command line for bash, or a program with arguments in a
//! skill or in the sandbox.
//!
//! The response comes when the exec has ended. A client that disconnects loses the response only;
//! the exec runs to its end.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ringwall_service::{Address, Executed, Execution};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::files::UserQuery;
use super::{Envelope, success};
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, PathParam, Query, read_optional_json};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLine {
    /// Command line for bash. The working directory is the workspace, with `files/` and `skills/`
    command: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandQuery {
    /// Name of the program
    command: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Executed)]
pub(crate) struct ExecutedBody {
    stdout: String,
    stderror: String,
    exit_code: i32,
}

async fn respond(by: &Caller, address: &Address, what: Execution) -> Result<Response, Problem> {
    let Executed { stdout, stderr, exit_code } = by.service.execute(&by.principal, address, what).await?;
    // Serializing megabytes would block the runtime's other tasks.
    Ok(tokio::task::block_in_place(|| success(ExecutedBody { stdout, stderror: stderr, exit_code }).into_response()))
}

/// Reads the arguments: a JSON array of strings, or no body.
fn arguments(body: Option<Value>) -> Result<Vec<String>, Problem> {
    let wrong = || Problem::invalid("the body is malformed: it must be a JSON array of strings, the arguments");
    body.map_or(Ok(Vec::new()), |body| serde_json::from_value(body).map_err(|_| wrong()))
}

#[utoipa::path(post, path = "/v1/{agent}/execute", tag = "files", params(("agent" = String, Path), UserQuery),
    request_body = NewLine,
    responses((status = 200, description = "The command line has ended", body = Envelope<ExecutedBody>), (status = 403, description = "The command line contains a command that is not in the allow-list"), (status = 408, description = "Killed at the time limit")))]
pub(crate) async fn line(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(UserQuery { user }): Query<UserQuery>,
    JsonBody(body): JsonBody<NewLine>,
) -> Result<Response, Problem> {
    respond(&by, &Address { user, agent }, Execution::Line(body.command)).await
}

#[utoipa::path(post, path = "/v1/skills/{user}/{agent}/{skill}/execute", tag = "agent skills",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), CommandQuery),
    request_body = Option<Vec<String>>,
    responses((status = 200, description = "The program has ended", body = Envelope<ExecutedBody>), (status = 403, description = "The program is not in the allow-list, or an argument is not allowed"), (status = 408, description = "Killed at the time limit")))]
pub(crate) async fn skill(
    State(state): State<AppState>,
    by: Caller,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
    Query(CommandQuery { command }): Query<CommandQuery>,
    body: Body,
) -> Result<Response, Problem> {
    let arguments = arguments(read_optional_json(body, state.max_body_bytes).await?)?;
    let address = Address { user: Some(user), agent };
    respond(&by, &address, Execution::Skill { skill, command, arguments }).await
}

#[utoipa::path(post, path = "/v1/sandbox/{user}/{agent}/execute", tag = "sandbox",
    params(("user" = String, Path), ("agent" = String, Path), CommandQuery),
    request_body = Option<Vec<String>>,
    responses((status = 200, description = "The program has ended", body = Envelope<ExecutedBody>), (status = 403, description = "The program is not in the allow-list, or an argument is not allowed"), (status = 408, description = "Killed at the time limit")))]
pub(crate) async fn sandbox(
    State(state): State<AppState>,
    by: Caller,
    PathParam((user, agent)): PathParam<(String, String)>,
    Query(CommandQuery { command }): Query<CommandQuery>,
    body: Body,
) -> Result<Response, Problem> {
    let arguments = arguments(read_optional_json(body, state.max_body_bytes).await?)?;
    let address = Address { user: Some(user), agent };
    respond(&by, &address, Execution::Sandbox { command, arguments }).await
}
