//! Where a server's log goes: standard error, for people on a terminal, as JSON otherwise.
//!
//! What is logged is chosen where it happens. A token, a body or the value of a variable is never part of a line.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::message::Message;

const VARIABLE: &str = "RINGWALL_LOG";
const DEFAULT: &str = "info,sqlx=warn";

/// `RINGWALL_LOG` takes the usual filter words, such as `debug` or `ringwall=debug,info`.
pub(crate) fn begin() -> Result<(), Message> {
    let asked = std::env::var(VARIABLE).unwrap_or_else(|_| DEFAULT.to_owned());
    // Secrets: rmcp logs whole messages, and sqlx whole lines of a PGPASSFILE and values of URL parameters.
    let filter = EnvFilter::try_new(format!("{asked},rmcp=off,sqlx_postgres::options=off")).map_err(|error| {
        Message::new(format!("{VARIABLE}={asked}: {error}")).with_hint("for example: RINGWALL_LOG=debug")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun =
        if std::io::stderr().is_terminal() { log.try_init() } else { log.json().flatten_event(true).try_init() };
    begun.map_err(|error| Message::new(format!("could not start logging: {error}")))
}
