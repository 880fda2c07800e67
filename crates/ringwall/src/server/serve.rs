//! `ringwall serve`: opens the service, prints where it listens and serves until SIGTERM or SIGINT.
//!
//! The socket is bound before the service opens, so that a port in use fails before the data directory
//! is changed. `Service::open` runs a test box; the first connection is accepted after that. SIGTERM
//! and SIGINT close the listener, give running execs [`DRAIN_TIMEOUT`] to end, and exit with code 0.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ringwall_service::{Auth, Service};
use rustix::process::{Resource, getrlimit};

use crate::http::{self, AppState};
use crate::mcp;
use crate::message::Message;
use crate::runtime::{self, StopSignals};
use crate::server::config::{self, Overrides, ServerConfig};
use crate::server::environment::Environment;
use crate::server::webhook;

/// Time that running execs have to end after a signal to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);
/// Bounds of the default of `--max-connections`.
const MIN_CONNECTIONS: usize = 64;
const MAX_CONNECTIONS: usize = 4096;

pub(crate) fn run(flags: Overrides, data: &Path) -> Result<ExitCode, Message> {
    let config = config::resolve(data, flags, &Environment::read()?)?;
    runtime::start_logging()?;
    let runtime = runtime::start()?;
    runtime.block_on(serve(config))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(config: ServerConfig) -> Result<(), Message> {
    let address = config.listen;
    let bind_error = |error: std::io::Error| {
        Message::new(format!("could not listen on {address}: {error}")).with_hint(
            "stop the program that uses the port, or choose another one with --listen ADDR:PORT or RINGWALL_LISTEN",
        )
    };
    let listener = http::Listener::bind(address).await.map_err(bind_error)?;
    let local_address = listener.local_addr();
    let mut signals = StopSignals::listen()?;
    let service = Service::open(config.service.clone()).await?;
    let max_connections = config.max_connections.unwrap_or_else(default_max_connections);
    let state =
        AppState::new(service.clone(), &config.allowed_hosts, local_address, config.max_body_bytes, max_connections);
    let app = http::app(state);
    // Ends when the service drains.
    let webhook_task = tokio::spawn(webhook::run(service.clone()));
    let _local_socket = mcp::serve_local_socket(&service, &config.service.data);
    print_greeting(&config, local_address, service.make_login_code()?.as_deref());
    tracing::info!(listening = %local_address, "serving");
    let stop = async {
        signals.next().await;
        tracing::info!("stopping");
    };
    http::serve(listener, app, max_connections, stop, service.drain(DRAIN_TIMEOUT)).await;
    // Sends the queued notifications; has a timeout of its own.
    let _ = webhook_task.await;
    tracing::info!("stopped");
    Ok(())
}

/// Half of the limit of open files; the other half is for execs.
fn default_max_connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 2).unwrap_or(usize::MAX).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

/// Prints the address, a login link, the path of the token, and two commands to copy: one submits an
/// exec, the other shows its output. The login code is in the fragment (`#`), which browsers do not
/// send, so no proxy can log it.
fn print_greeting(config: &ServerConfig, local_address: std::net::SocketAddr, code: Option<&str>) {
    let reachable = match local_address.ip() {
        address if !address.is_unspecified() => local_address,
        std::net::IpAddr::V4(_) => (std::net::Ipv4Addr::LOCALHOST, local_address.port()).into(),
        std::net::IpAddr::V6(_) => (std::net::Ipv6Addr::LOCALHOST, local_address.port()).into(),
    };
    let token = config.service.data.join("owner.token");
    let (access, header) = match config.service.auth {
        Auth::Tokens => {
            let quoted = token.display().to_string().replace('\'', r"'\''");
            (
                format!("the owner's token is in {}", token.display()),
                format!(" -H \"Authorization: Bearer $(cat '{quoted}')\""),
            )
        }
        Auth::Disabled => ("everyone is the owner (--no-auth)".to_owned(), String::new()),
    };
    let console = match code {
        Some(code) => {
            format!("open the console (this link works once, within ten minutes): http://{reachable}/login#{code}")
        }
        None => format!("open the console: http://{reachable}/"),
    };
    let execs = format!("http://{reachable}/sandbox/execs");
    let body = r#"{"project_id":"hello","exec":{"kind":"shell","command":"bash","args":["-lc","id; cat /etc/shadow; echo done"]}}"#;
    let newest_id = format!("$(curl -s '{execs}?limit=1'{header} | grep -o 'e_[0-9a-f]*' | head -n 1)");
    let text = format!(
        "ringwall serves on http://{reachable}\n{console}\n{access}\n\
         try:\n  curl {execs}{header} -d '{body}'\n\
         and see what it printed:\n  curl {execs}/{newest_id}/observation{header}\n\
         Ctrl-C stops the server.\n"
    );
    // Standard output may be closed. The log contains the address too.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
