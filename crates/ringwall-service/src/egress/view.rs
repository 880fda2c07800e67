//! The connections of an exec's box as returned by the API.

use std::time::UNIX_EPOCH;

use ringwall_executor::egress::{Connection, Fate};
use ringwall_record::Timestamp;
use serde::{Deserialize, Serialize};

use crate::time::milliseconds;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = ExecNetwork)]
pub struct NetworkView {
    /// In the order in which they ended
    pub connections: Vec<ConnectionView>,
    /// Number of connections beyond those that are kept
    pub left_out: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ExecConnection)]
pub struct ConnectionView {
    /// Time of the request in milliseconds since 1970
    pub at: i64,
    pub duration_ms: u64,
    pub host: String,
    pub port: u16,
    /// The address of the peer; null if there was no connection
    pub address: Option<String>,
    /// `allowed`, `refused`, or `failed` if the peer could not be reached
    pub outcome: String,
    /// The rule that allowed it, or why it was refused or failed
    pub reason: String,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl From<Connection> for ConnectionView {
    fn from(connection: Connection) -> Self {
        let since = connection.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp::from_milliseconds(milliseconds(since).try_into().unwrap_or(i64::MAX));
        Self {
            at: at.milliseconds(),
            duration_ms: milliseconds(connection.duration),
            host: connection.host,
            port: connection.port,
            address: connection.address.map(|address| address.to_string()),
            outcome: match connection.fate {
                Fate::Allowed => "allowed",
                Fate::Refused => "refused",
                Fate::Failed => "failed",
            }
            .to_owned(),
            reason: connection.reason,
            bytes_sent: connection.bytes_sent,
            bytes_received: connection.bytes_received,
        }
    }
}
