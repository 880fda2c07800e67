//! The interface that decides about hosts and records connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use ringwall_policy::NetHost;

use super::meter::Meter;

pub trait Gate: Send + Sync + std::fmt::Debug + 'static {
    /// May take as long as a person needs to answer. The future is dropped when the box ends.
    fn judge(&self, host: NetHost, port: u16) -> BoxFuture<'_, Ruling>;

    /// Called when a connection is requested; [`note`](Self::note) follows in any case.
    fn began(&self) {}

    /// Called when a connection has ended or was not made.
    fn note(&self, connection: Connection);

    /// The gate of the current command, if it differs: in a session box one command follows
    /// another.
    fn current(&self) -> Option<Arc<dyn Gate>> {
        None
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// The rule.
    Allowed(String),
    /// The reason.
    Refused(String),
}

/// A connection that the box requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub at: SystemTime,
    pub duration: Duration,
    /// The requested host, normalized if it is valid.
    pub host: String,
    pub port: u16,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    pub fate: Fate,
    /// The rule that allowed it, or the reason why it was refused or failed.
    pub reason: String,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Allowed,
    Refused,
    /// It was allowed, but the host could not be reached.
    Failed,
}

/// A connection while it lasts. It is recorded when this value is dropped.
#[derive(Debug)]
pub(super) struct ConnectionRecord {
    gate: Arc<dyn Gate>,
    since: Instant,
    connection: Connection,
    pub(super) meter: Arc<Meter>,
}

impl ConnectionRecord {
    /// Starts as refused; later calls change that.
    pub(super) fn begin(gate: Arc<dyn Gate>, host: String, port: u16) -> Self {
        let connection = Connection {
            at: SystemTime::now(),
            duration: Duration::ZERO,
            host,
            port,
            address: None,
            fate: Fate::Refused,
            reason: "canceled before it was decided".to_owned(),
            bytes_sent: 0,
            bytes_received: 0,
        };
        gate.began();
        Self { gate, since: Instant::now(), connection, meter: Arc::default() }
    }

    pub(super) fn refused(&mut self, why: &str) {
        (self.connection.fate, self.connection.reason) = (Fate::Refused, why.to_owned());
    }

    pub(super) fn failed(&mut self, why: &str) {
        (self.connection.fate, self.connection.reason) = (Fate::Failed, why.to_owned());
    }

    pub(super) fn allowed(&mut self, address: IpAddr, rule: String) {
        self.connection.address = Some(address);
        (self.connection.fate, self.connection.reason) = (Fate::Allowed, rule);
    }
}

impl Drop for ConnectionRecord {
    fn drop(&mut self) {
        let mut connection = self.connection.clone();
        connection.duration = self.since.elapsed();
        (connection.bytes_sent, connection.bytes_received) = self.meter.read();
        self.gate.note(connection);
    }
}
