//! An external AIO Sandbox service: a container of somebody else's, reached over HTTP, that runs commands and keeps files.
//!
//! `address` says where it is, `connection` asks one question and bounds the answer, `messages` are the words of both,
//! `client` has a method for each question. `start` hands a granted command over, `follow` fetches what it prints, `running`
//! sees to its end; `directory` is where a session's files are there, `line` what its shell is told.
//!
//! Nothing here isolates anything: that is the service's, and each outcome says so. A service is one container, so whoever
//! uses it gives it to one workspace alone. No other backend ever stands in.

mod address;
mod client;
mod connection;
mod directory;
mod follow;
mod line;
mod messages;
mod protections;
mod running;
mod start;
#[cfg(test)]
mod tests;

pub use crate::error::AioError;
pub use address::ServiceUrl;
pub use client::{AioService, CodeLanguage, CodeOutcome, ServiceInfo};
pub use directory::ServiceDirectory;
pub use start::{OnCreated, ServiceFile, ServiceWork};
