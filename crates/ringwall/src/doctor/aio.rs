//! Whether the external AIO service that a server here would use answers and accepts its key: one question, as the server asks.
//!
//! What is configured is read as the server reads it, and told without the key.

use std::path::Path;

use super::facts::Aio;
use crate::cli::message::Message;
use crate::server::config;
use crate::server::environment::Environment;

pub(crate) async fn ask(data: &Path) -> Aio {
    let configured = Environment::read().and_then(|environment| config::aio(data, &environment));
    let service = configured.and_then(|fixed| ringwall_service::aio_service(&fixed).map_err(Message::from));
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
