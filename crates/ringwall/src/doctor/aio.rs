//! Sends one request to the external AIO service that a server with this data directory and environment
//! would use, to check that it answers and accepts the configured key.

use std::path::Path;

use super::facts::Aio;
use crate::cli::message::Message;
use crate::server::config;
use crate::server::environment::Environment;

pub(crate) async fn check(data: &Path) -> Aio {
    let configured = Environment::read().and_then(|environment| config::aio(data, &environment));
    let service = configured.and_then(|pinned| ringwall_service::aio_service(&pinned).map_err(Message::from));
    match service {
        Ok(None) => Aio::NotConfigured,
        Ok(Some(service)) => match service.info().await {
            Ok(info) => Aio::Answers { version: info.version },
            Err(error) => Aio::Unusable { why: error.to_string(), fix: error.hint().to_owned() },
        },
        Err(message) => Aio::Unusable {
            why: message.text().to_owned(),
            fix: "correct [aio] of ringwall.toml, or the variables RINGWALL_AIO_*".to_owned(),
        },
    }
}
