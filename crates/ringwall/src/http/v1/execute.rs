//! Runs commands on an agent's files: a command line for bash, or a program with arguments in a
//! skill or in the sandbox.
//!
//! The response comes when the exec has ended. A client that disconnects loses the response only;
//! the exec runs to its end.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use ringwall_service::{Address, Executed, Execution, Principal};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::envelope::{Envelope, success};
use super::files::UserWord;
use crate::http::Door;
use crate::http::transport::body::{Named, Words, read_json, read_optional_json, shape};
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
pub(crate) struct CommandWords {
    /// Name of the program
    command: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Executed)]
pub(crate) struct Told {
    stdout: String,
    stderror: String,
    exit_code: i32,
}

async fn answer(door: &Door, principal: &Principal, address: &Address, what: Execution) -> Result<Response, Problem> {
    let Executed { stdout, stderr, exit_code } = door.service.execute(principal, address, what).await?;
    // Serializing megabytes would block the runtime's other tasks.
    Ok(tokio::task::block_in_place(|| success(Told { stdout, stderror: stderr, exit_code }).into_response()))
}

/// Reads the arguments: a JSON array of strings, or no body.
fn arguments(body: Option<Value>) -> Result<Vec<String>, Problem> {
    let wrong = || Problem::invalid("the body is malformed: it must be a JSON array of strings, the arguments");
    body.map_or(Ok(Vec::new()), |body| serde_json::from_value(body).map_err(|_| wrong()))
}

#[utoipa::path(post, path = "/v1/{agent}/execute", tag = "files", params(("agent" = String, Path), UserWord),
    request_body = NewLine,
    responses((status = 200, description = "The command line has ended", body = Envelope<Told>), (status = 403, description = "The command line contains a command that is not in the allow-list"), (status = 408, description = "Killed at the time limit")))]
pub(crate) async fn line(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(agent): Named<String>,
    Words(UserWord { user }): Words<UserWord>,
    body: Body,
) -> Result<Response, Problem> {
    let body: NewLine = shape(read_json(body, door.largest_body).await?)?;
    answer(&door, &principal, &Address { user, agent }, Execution::Line(body.command)).await
}

#[utoipa::path(post, path = "/v1/skills/{user}/{agent}/{skill}/execute", tag = "agent skills",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), CommandWords),
    request_body = Option<Vec<String>>,
    responses((status = 200, description = "The program has ended", body = Envelope<Told>), (status = 403, description = "The program is not in the allow-list, or an argument is not allowed"), (status = 408, description = "Killed at the time limit")))]
pub(crate) async fn skill(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named((user, agent, skill)): Named<(String, String, String)>,
    Words(CommandWords { command }): Words<CommandWords>,
    body: Body,
) -> Result<Response, Problem> {
    let arguments = arguments(read_optional_json(body, door.largest_body).await?)?;
    let address = Address { user: Some(user), agent };
    answer(&door, &principal, &address, Execution::Skill { skill, command, arguments }).await
}

#[utoipa::path(post, path = "/v1/sandbox/{user}/{agent}/execute", tag = "sandbox",
    params(("user" = String, Path), ("agent" = String, Path), CommandWords),
    request_body = Option<Vec<String>>,
    responses((status = 200, description = "The program has ended", body = Envelope<Told>), (status = 403, description = "The program is not in the allow-list, or an argument is not allowed"), (status = 408, description = "Killed at the time limit")))]
pub(crate) async fn sandbox(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named((user, agent)): Named<(String, String)>,
    Words(CommandWords { command }): Words<CommandWords>,
    body: Body,
) -> Result<Response, Problem> {
    let arguments = arguments(read_optional_json(body, door.largest_body).await?)?;
    let address = Address { user: Some(user), agent };
    answer(&door, &principal, &address, Execution::Sandbox { command, arguments }).await
}
