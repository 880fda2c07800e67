//! The three verdicts. A denial names the requested and the allowed value, the layer that set the
//! latter, and a remedy.

use std::fmt;

use ringwall_risk::{Finding, Level};
use serde::{Serialize, Serializer};

use crate::decide::Grant;
use crate::field::Field;
use crate::layer::LayerName;
use crate::session::NamedPath;

/// The answer to a request.
#[derive(Debug)]
pub enum Verdict {
    Allow(Grant),
    Ask(Ask),
    Deny(Denial),
}

impl Verdict {
    pub const fn strictness(&self) -> Strictness {
        match self {
            Self::Allow(_) => Strictness::Allow,
            Self::Ask(_) => Strictness::Ask,
            Self::Deny(_) => Strictness::Deny,
        }
    }
}

/// How strict a verdict is. The strictest of several is their `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strictness {
    Allow,
    Ask,
    Deny,
}

/// An approval is needed. The approver sees the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub reasons: Vec<String>,
    /// The named host paths that are not allowed.
    pub blocked: Vec<NamedPath>,
    /// The risk found in the code.
    pub risk: Option<AskedRisk>,
}

/// The risk level of code and its findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedRisk {
    pub level: Level,
    /// Sorted by line.
    pub findings: Vec<Finding>,
}

/// A denial. Only this crate makes one. The last five fields describe a denied limit; `layer` and
/// `requested_by` also denied network access.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    pub code: DenialCode,
    /// The denied thing and the reason.
    pub message: String,
    /// A remedy for the caller.
    pub hint: Option<String>,
    pub field: Option<Field>,
    /// In the field's own unit; [`Field::quantity`] formats it.
    pub requested: Option<u64>,
    /// In the field's own unit.
    pub allowed: Option<u64>,
    /// The layer that set `allowed`.
    pub layer: Option<LayerName>,
    /// The layer that requested for more.
    pub requested_by: Option<LayerName>,
}

impl Denial {
    pub(crate) fn new(code: DenialCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            field: None,
            requested: None,
            allowed: None,
            layer: None,
            requested_by: None,
        }
    }

    /// For a policy that allows hosts on a backend that cannot enforce the list.
    pub fn no_network(backend: &str) -> Self {
        let message = format!("net.mode: allowlist needs the native or docker backend; {backend} cannot enforce it");
        let hint =
            "choose one of these backends, or turn the network off: policy_overrides {\"net\":{\"mode\":\"none\"}}";
        Self::new(DenialCode::NetUnavailable, message).with_hint(hint)
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Denial {}

/// The rule that denied the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DenialCode {
    /// No command, or an empty command name.
    CommandEmpty,
    /// A command line that the exec's kind does not allow.
    CommandKind,
    /// A command that is in none of the lists that apply to it.
    CommandNotAllowed,
    /// A `SKILL.md` in the workspace, outside of `files/` and not at the root of a skill.
    FileReserved,
    /// A command argument with a `..` component.
    PathTraversal,
    /// A NUL byte in an argument or a path.
    NulByte,
    /// An invalid name of an environment variable.
    EnvironmentKey,
    /// An argument or variable longer than the kernel accepts.
    ArgumentTooLong,
    /// Arguments and variables that exceed the limit on their total size.
    ArgumentsTooLarge,
    /// A path that is not absolute or contains `..`.
    PathMalformed,
    /// A path that no box may have.
    PathForbidden,
    /// A path at which every box has its own directory.
    PathReserved,
    /// A working directory outside of the directories in which a command may start.
    WorkingDirectory,
    /// A value that is no valid limit.
    LimitInvalid,
    /// A limit above that of an earlier layer or of the ceiling.
    LimitExceeded,
    /// Network access beyond that of an earlier layer.
    NetExceeded,
    /// An allow-list of hosts on a backend that cannot enforce it.
    NetUnavailable,
    /// Destructive code.
    CodeDestructive,
    /// A backend that is weaker than the required one.
    BackendWeaker,
}

impl DenialCode {
    pub const fn key(self) -> &'static str {
        match self {
            Self::CommandEmpty => "command_empty",
            Self::CommandKind => "command_kind",
            Self::CommandNotAllowed => "command_not_allowed",
            Self::FileReserved => "file_reserved",
            Self::PathTraversal => "path_traversal",
            Self::NulByte => "nul_byte",
            Self::EnvironmentKey => "environment_key",
            Self::ArgumentTooLong => "argument_too_long",
            Self::ArgumentsTooLarge => "arguments_too_large",
            Self::PathMalformed => "path_malformed",
            Self::PathForbidden => "path_forbidden",
            Self::PathReserved => "path_reserved",
            Self::WorkingDirectory => "working_directory",
            Self::LimitInvalid => "limit_invalid",
            Self::LimitExceeded => "limit_exceeded",
            Self::NetExceeded => "net_exceeded",
            Self::NetUnavailable => "net_unavailable",
            Self::CodeDestructive => "code_destructive",
            Self::BackendWeaker => "backend_weaker",
        }
    }
}

impl Serialize for DenialCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strictest_verdict_is_the_maximum() {
        use Strictness::{Allow, Ask, Deny};
        assert!(Deny > Ask && Ask > Allow);
        assert_eq!([Allow, Deny, Ask].into_iter().max(), Some(Deny));
        assert_eq!([Allow, Ask, Allow].into_iter().max(), Some(Ask));
    }

    #[test]
    fn verdict_has_strictness() {
        let ask = Verdict::Ask(super::Ask { reasons: vec!["it deletes files".into()], blocked: vec![], risk: None });
        let deny = Verdict::Deny(Denial::new(DenialCode::CommandEmpty, "no"));
        assert_eq!(ask.strictness(), Strictness::Ask);
        assert_eq!(deny.strictness(), Strictness::Deny);
    }

    #[test]
    fn denial_displays_its_message() {
        let denial = Denial::new(DenialCode::NulByte, "the command has a NUL").with_hint("remove it");
        assert_eq!(denial.to_string(), "the command has a NUL");
        assert_eq!(denial.hint.as_deref(), Some("remove it"));
    }
}
