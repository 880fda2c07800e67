//! `ringwall mcp`: the MCP server on standard streams, for clients that start their servers
//! themselves.
//!
//! Without `--url` it opens the data directory itself and acts for its owner; if another process
//! has the directory open, it connects to that (`local_socket`). With `--url` it forwards messages
//! to another server (`bridge`). Standard output carries only messages; the log goes to standard
//! error.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ringwall_service::{Config, Service};
use rmcp::ServiceExt as _;
use rmcp::service::RunningService;
use rmcp::{RoleServer, transport::async_rw::AsyncRwTransport};
use tokio::net::UnixStream;

use super::caller::{Caller, Scope};
use super::handler::Mcp;
use super::{bridge, local_socket};
use crate::client::owner_token;
use crate::message::Message;
use crate::runtime::{self, StopSignals};
use crate::server::config::{self, DatabaseOverride, DockerOverride, Overrides};
use crate::server::environment::Environment;
use crate::server::webhook;

/// How long execs may go on after the client has disconnected.
const DRAIN: Duration = Duration::from_millis(500);
/// How long responses are still written after the client has closed its output.
pub(super) const LAST_RESPONSES_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to retry while the process that has the data directory starts or stops.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Limit of one message, which may contain a file.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Forward to a running server at this http or https address [default: open the data directory,
    /// or connect to the process that has it open]
    #[arg(long, value_name = "URL", env = "RINGWALL_URL", hide_env = true)]
    url: Option<String>,
    /// The token for that server [default: the owner's, from the data directory]
    #[arg(long, value_name = "TOKEN", env = "RINGWALL_TOKEN", hide_env = true, hide_env_values = true)]
    token: Option<String>,
    /// The agent whose files the tools work on [default: the token's, or `default`]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The agent's user, for owners and operators [default: the token's user, or `default`]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// The session whose workspace the tools share [default: `default`]
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    #[command(flatten)]
    database: DatabaseOverride,
    #[command(flatten)]
    docker: DockerOverride,
}

pub(crate) fn run(arguments: McpArguments, data: &Path) -> Result<ExitCode, Message> {
    let McpArguments { url, token, agent, user, session, database, docker } = arguments;
    let scope = Scope { user, agent, session };
    runtime::start_logging()?;
    let runtime = runtime::start()?;
    let served = match url {
        Some(url) => {
            let token = token.or_else(|| owner_token(data));
            runtime.block_on(bridge::forward_stdio(&url, token.as_deref(), &scope))
        }
        None => {
            let overrides = Overrides { database, docker, ..Overrides::default() };
            let config = config::resolve(data, overrides, &Environment::read()?)?;
            runtime.block_on(serve(config.service, scope))
        }
    };
    // A blocking read of standard input cannot be cancelled, so the runtime must not wait for its
    // thread.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(config: Config, scope: Scope) -> Result<(), Message> {
    let mut signals = StopSignals::listen()?;
    let data = config.data.clone();
    let service = match open(config, &scope).await? {
        Opened::Own(service) => service,
        Opened::Connected(stream) => {
            return tokio::select! {
                forwarded = local_socket::forward_stdio(stream) => forwarded,
                () = signals.next() => Ok(()),
            };
        }
    };
    // The task ends when the service drains.
    tokio::spawn(webhook::run(service.clone()));
    let _local_socket = local_socket::serve(&service, &data);
    let principal = service.authenticate(owner_token(&data).as_deref()).await?;
    let mcp = Mcp::new(service.clone()).for_caller(Caller::local(principal, scope));
    let serving = async {
        let (input, output) = rmcp::transport::stdio();
        let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE_BYTES);
        match mcp.serve(transport).await {
            Ok(running) => wait(running).await,
            // The client has disconnected or does not speak MCP.
            Err(error) => tracing::info!(%error, "the client did not initialize"),
        }
    };
    tokio::select! {
        () = serving => {}
        () = signals.next() => {}
    }
    service.drain(DRAIN).await;
    Ok(())
}

/// The service on the data directory, or a connection to the process that has it open.
enum Opened {
    Own(Service),
    Connected(UnixStream),
}

async fn open(config: Config, scope: &Scope) -> Result<Opened, Message> {
    let deadline = Instant::now() + OPEN_TIMEOUT;
    loop {
        let in_use = match Service::open(config.clone()).await {
            Ok(service) => return Ok(Opened::Own(service)),
            Err(error @ ringwall_service::Error::DataInUse) => error,
            Err(other) => return Err(other.into()),
        };
        match local_socket::connect(&config.data, scope).await {
            Ok(stream) => return Ok(Opened::Connected(stream)),
            Err(_) if Instant::now() < deadline => tokio::time::sleep(RETRY_PAUSE).await,
            Err(error) => {
                tracing::info!(%error, "could not connect to the process that has the data directory open");
                let hint = "stop that process, or connect to it with --url, for example --url http://127.0.0.1:8003";
                return Err(Message::from(in_use).with_hint(hint));
            }
        }
    }
}

async fn wait(running: RunningService<RoleServer, Mcp>) {
    if let Err(error) = running.waiting().await {
        tracing::warn!(%error, "the MCP connection broke");
    }
}
