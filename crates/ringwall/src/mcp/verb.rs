//! `ringwall mcp`: the tools on standard streams, for a client that starts its servers itself.
//!
//! Without `--url` it is a server of its own on the data directory, and whoever owns that is who asks; where another one has the
//! directory, it joins that (`windows`). With `--url` it only carries messages to a server that runs. Standard output has
//! nothing but messages; the log goes to standard error.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ringwall_service::{Auth, Config, Service};
use rmcp::ServiceExt as _;
use rmcp::service::RunningService;
use rmcp::{RoleServer, transport::async_rw::AsyncRwTransport};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use super::handler::Mcp;
use super::who::{Scope, Who};
use super::{bridge, windows};
use crate::cli::client::owner_token;
use crate::cli::message::Message;
use crate::runtime;
use crate::server::environment::Environment;
use crate::server::logging;
use crate::server::webhook;
use crate::server::{
    config,
    config::{DatabaseOverride, DockerOverride, Overrides},
};

/// How long what runs may go on once nobody listens any more.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a client that says no more is still told what it asked before, whoever answers it.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Whoever has the directory may just begin, or end: longer than either takes.
const TAKING_OVER: Duration = Duration::from_secs(20);
const BEFORE_TRYING_AGAIN: Duration = Duration::from_millis(50);
/// Of one message: a file's content and what is around it.
pub(super) const MAX_MESSAGE_LEN: usize = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// A server that runs, http or https; without one, this is a server on the data directory, or joins whoever has it
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
    logging::begin()?;
    let runtime = runtime::start()?;
    let served = match url {
        Some(url) => {
            let token = token.or_else(|| owner_token(data));
            runtime.block_on(bridge::carry(&url, token.as_deref(), &scope))
        }
        None => {
            let overrides = Overrides { database, docker, ..Overrides::default() };
            let config = config::resolve(data, overrides, &Environment::read()?)?;
            runtime.block_on(serve(config, scope))
        }
    };
    // A thread may still wait for standard input, which nothing but its end can stop.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(config: config::ServerConfig, scope: Scope) -> Result<(), Message> {
    let failed = |error: std::io::Error| Message::new(format!("could not listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let data = config.data.clone();
    let service = match open(config, &scope).await? {
        Opened::Own(service) => service,
        Opened::Joined(stream) => {
            return tokio::select! {
                carried = windows::carry(stream) => carried,
                _ = terminate.recv() => Ok(()),
                _ = interrupt.recv() => Ok(()),
            };
        }
    };
    // It ends when the service drains.
    tokio::spawn(webhook::run(service.clone()));
    let _windows = windows::serve(&service, &data);
    let principal = service.authenticate(owner_token(&data).as_deref()).await?;
    let mcp = Mcp::new(service.clone()).for_one(Who::local(principal, scope));
    let talking = async {
        let (input, output) = rmcp::transport::stdio();
        let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE_LEN);
        match mcp.serve(transport).await {
            Ok(running) => wait(running).await,
            // Whoever says nothing that begins a conversation is gone, or is no client.
            Err(error) => tracing::info!(%error, "the client did not begin"),
        }
    };
    tokio::select! {
        () = talking => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    service.drain(DRAIN).await;
    Ok(())
}

/// The data directory, or a way to whoever has it.
enum Opened {
    Own(Service),
    Joined(UnixStream),
}

async fn open(config: config::ServerConfig, scope: &Scope) -> Result<Opened, Message> {
    let config = Config {
        data: config.data,
        database: config.database,
        auth: Auth::Tokens,
        fixed: config.fixed,
        file: config.file,
    };
    let deadline = Instant::now() + TAKING_OVER;
    loop {
        let error = match Service::open(config.clone()).await {
            Ok(service) => return Ok(Opened::Own(service)),
            Err(error @ ringwall_service::Error::DataInUse) => error,
            Err(other) => return Err(other.into()),
        };
        match windows::join(&config.data, scope).await {
            Ok(stream) => return Ok(Opened::Joined(stream)),
            Err(_) if Instant::now() < deadline => tokio::time::sleep(BEFORE_TRYING_AGAIN).await,
            Err(why) => {
                tracing::info!(%why, "whoever has the data directory could not be joined");
                let hint = "end what has it, or name a server that runs with --url, such as http://127.0.0.1:8003";
                return Err(Message::from(error).with_hint(hint));
            }
        }
    }
}

async fn wait(running: RunningService<RoleServer, Mcp>) {
    if let Err(error) = running.waiting().await {
        tracing::warn!(%error, "the conversation broke off");
    }
}
