//! The server's log on standard error: text on a terminal, otherwise JSON.
//!
//! No log line may contain a token, a request body or the value of an environment variable.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::message::Message;

const VARIABLE: &str = "RINGWALL_LOG";
const DEFAULT: &str = "info,sqlx=warn";

/// Starts logging with the filter in `RINGWALL_LOG`, in the syntax of `EnvFilter`: `debug`, or
/// `ringwall=debug,info`.
pub(crate) fn start() -> Result<(), Message> {
    let directives = std::env::var(VARIABLE).unwrap_or_else(|_| DEFAULT.to_owned());
    // These two targets would log secrets, so no filter can turn them on: rmcp logs whole messages, and
    // sqlx logs lines of a PGPASSFILE and values of URL parameters.
    let filter = EnvFilter::try_new(format!("{directives},rmcp=off,sqlx_postgres::options=off")).map_err(|error| {
        Message::new(format!("invalid log filter {VARIABLE}={directives}: {error}"))
            .with_hint("for example: RINGWALL_LOG=debug")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started =
        if std::io::stderr().is_terminal() { log.try_init() } else { log.json().flatten_event(true).try_init() };
    started.map_err(|error| Message::new(format!("could not start logging: {error}")))
}
