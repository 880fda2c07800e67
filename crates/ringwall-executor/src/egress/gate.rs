//! Who says whether a host may be reached, and is told what became of each connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use ringwall_policy::NetHost;

use super::meter::Meter;

pub trait Gate: Send + Sync + std::fmt::Debug + 'static {
    /// May take as long as a person needs to answer. Given up when the box is.
    fn judge(&self, host: NetHost, port: u16) -> BoxFuture<'_, Ruling>;

    /// A connection was asked for; `note` follows in any case.
    fn began(&self) {}

    /// One connection is over, or never was.
    fn note(&self, connection: Connection);

    /// Who judges and is told of a connection that is asked for now, where that is somebody else: in a box that stays, one
    /// command comes after another.
    fn on_duty(&self) -> Option<Arc<dyn Gate>> {
        None
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// By this rule.
    Allowed(String),
    /// For this reason.
    Refused(String),
}

/// One connection that the box asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub at: SystemTime,
    pub duration: Duration,
    /// As it was asked for, in its one spelling where it has one.
    pub host: String,
    pub port: u16,
    /// What was connected to.
    pub address: Option<IpAddr>,
    pub fate: Fate,
    /// The rule that allowed it, or why it was refused or failed.
    pub reason: String,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Allowed,
    Refused,
    /// It was allowed, and the other side could not be reached.
    Failed,
}

/// A connection while it lasts. It is told of when this is dropped, in whatever way that comes about.
#[derive(Debug)]
pub(super) struct Noted {
    gate: Arc<dyn Gate>,
    since: Instant,
    connection: Connection,
    pub(super) meter: Arc<Meter>,
}

impl Noted {
    /// Refused, unless it turns out otherwise.
    pub(super) fn begin(gate: Arc<dyn Gate>, host: String, port: u16) -> Self {
        let connection = Connection {
            at: SystemTime::now(),
            duration: Duration::ZERO,
            host,
            port,
            address: None,
            fate: Fate::Refused,
            reason: "given up before it was decided".to_owned(),
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

impl Drop for Noted {
    fn drop(&mut self) {
        let mut connection = self.connection.clone();
        connection.duration = self.since.elapsed();
        (connection.bytes_sent, connection.bytes_received) = self.meter.read();
        self.gate.note(connection);
    }
}
