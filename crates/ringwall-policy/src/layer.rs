//! A layer: the limits, network access and requirements that one party asks for.
//!
//! [`merge`](crate::merge) compares layers. `reading.rs` deserialises them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, quote};
use crate::field::Field;
use crate::net::NetRequest;

/// The party that set a value. `Machine` is the size of the machine, as a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerName {
    System,
    Settings,
    CommandLine,
    Skill,
    Request,
    Machine,
}

impl LayerName {
    /// The public name; the same as the serialised form.
    pub const fn key(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Settings => "settings",
            Self::CommandLine => "command_line",
            Self::Skill => "skill",
            Self::Request => "request",
            Self::Machine => "machine",
        }
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::System => "the system's policy",
            Self::Settings => "the settings",
            Self::CommandLine => "the command line",
            Self::Skill => "the skill's manifest",
            Self::Request => "the request",
            Self::Machine => "this machine",
        })
    }
}

/// A protection whose absence is only reported by default, because some kernels and most rootless
/// installations lack it. If a layer requires it, its absence is a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    Landlock,
    Memory,
    Pids,
    Cpu,
    Io,
    /// One box cannot hold more than a quarter of `fs.file-max` open files.
    OpenFiles,
    /// This and the following variants: the box has a counter of its own for a resource that the
    /// kernel counts per user id.
    EpollWatches,
    InotifyInstances,
    PendingSignals,
    PipePages,
    PassedDescriptors,
    UserProcesses,
}

impl Requirement {
    pub const ALL: [Self; 12] = [
        Self::Landlock,
        Self::Memory,
        Self::Pids,
        Self::Cpu,
        Self::Io,
        Self::OpenFiles,
        Self::EpollWatches,
        Self::InotifyInstances,
        Self::PendingSignals,
        Self::PipePages,
        Self::PassedDescriptors,
        Self::UserProcesses,
    ];

    pub const fn key(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Io => "io",
            Self::OpenFiles => "open_files",
            Self::EpollWatches => "epoll_watches",
            Self::InotifyInstances => "inotify_instances",
            Self::PendingSignals => "pending_signals",
            Self::PipePages => "pipe_pages",
            Self::PassedDescriptors => "passed_descriptors",
            Self::UserProcesses => "user_processes",
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key())
    }
}

impl FromStr for Requirement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|requirement| requirement.key() == text)
            .ok_or_else(|| Error::RequirementUnknown { given: quote(text) })
    }
}

/// What one party asks for. Absent values are left to the other layers.
///
/// Deserialises from the form that settings, manifests and requests share:
/// `{"timeout_ms": 5000, "cpu_cores": 0.5, "net": {"mode": "none"}, "require": ["landlock"]}`.
/// The form does not contain the name of its layer, so it is read as [`LayerName::Request`], a
/// narrowing layer; the caller sets the true name with [`Layer::with_name`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub name: LayerName,
    pub limits: BTreeMap<Field, u64>,
    pub net: Option<NetRequest>,
    pub require: BTreeSet<Requirement>,
}

impl Layer {
    /// A layer that asks for nothing.
    pub const fn new(name: LayerName) -> Self {
        Self { name, limits: BTreeMap::new(), net: None, require: BTreeSet::new() }
    }

    pub fn with_name(self, name: LayerName) -> Self {
        Self { name, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{NetMode, UnknownHost};

    #[test]
    fn key_equals_serialised_form() -> Result<(), serde_json::Error> {
        use LayerName::{CommandLine, Machine, Request, Settings, Skill, System};
        for name in [System, Settings, CommandLine, Skill, Request, Machine] {
            assert_eq!(serde_json::to_value(name)?, name.key());
        }
        for requirement in Requirement::ALL {
            assert_eq!(serde_json::to_value(requirement)?, requirement.key());
            assert_eq!(requirement.key().parse(), Ok(requirement));
        }
        for mode in [NetMode::None, NetMode::Allowlist] {
            assert_eq!(serde_json::to_value(mode)?, mode.key());
        }
        for unknown in [UnknownHost::Deny, UnknownHost::Ask] {
            assert_eq!(serde_json::to_value(unknown)?, unknown.key());
        }
        Ok(())
    }
}
