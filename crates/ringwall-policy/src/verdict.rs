//! The three answers, and how strict each is.
//!
//! A denial is written for the person who reads it: what was asked, what is allowed, who says so, and what to do.
//! Nothing here decides; the rules do, and they can be combined by taking the strictest.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::decide::Grant;
use crate::field::Field;
use crate::layer::LayerName;
use crate::risk::{Finding, Level};
use crate::session::Named;

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

/// How strict a verdict is. Ordered, so that the strictest of several opinions is their `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strictness {
    Allow,
    Ask,
    Deny,
}

/// A person has to answer first. The reasons are what they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub reasons: Vec<String>,
    /// The paths of the host that the command names and that nobody has allowed.
    pub blocked: Vec<Named>,
    /// What in its code deserves care.
    pub risk: Option<AskedRisk>,
}

/// How much care, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedRisk {
    pub level: Level,
    /// By line.
    pub findings: Vec<Finding>,
}

/// A refusal. Readable everywhere, made only here. The last five members are set when a limit was exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    pub code: DenialCode,
    /// One sentence, without a full stop, that stands alone.
    pub message: String,
    /// What the asker can do about it.
    pub hint: Option<String>,
    pub field: Option<Field>,
    /// In the field's own unit; [`Field::quantity`] shows it.
    pub asked: Option<u64>,
    /// In the field's own unit.
    pub allowed: Option<u64>,
    /// The layer that set what is allowed.
    pub layer: Option<LayerName>,
    /// The layer that wanted more.
    pub asked_by: Option<LayerName>,
}

impl Denial {
    pub(crate) fn new(code: DenialCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            field: None,
            asked: None,
            allowed: None,
            layer: None,
            asked_by: None,
        }
    }

    /// An allow-list where the chosen maker of boxes knows none.
    pub fn no_network(backend: &str) -> Self {
        let message =
            format!("net.mode: allowlist is for native and docker boxes, and the {backend} backend makes others");
        let hint =
            "choose one of these backends, or ask for no network: policy_overrides {\"net\":{\"mode\":\"none\"}}";
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

/// Which rule refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DenialCode {
    /// No command, or one without a name.
    CommandEmpty,
    /// A command line that its kind does not have.
    CommandKind,
    /// A command whose name is in no list.
    CommandNotAllowed,
    /// A file of the system's where none may be.
    FileReserved,
    /// An argument that goes up.
    PathTraversal,
    /// A NUL byte where the kernel ends a string.
    NulByte,
    /// A name that no environment variable can have.
    EnvironmentKey,
    /// One argument or variable is longer than the kernel takes.
    ArgumentTooLong,
    /// All arguments and variables together are more than a process can be given.
    ArgumentsTooLarge,
    /// A path that is not absolute, or goes up.
    PathMalformed,
    /// A place that no box may be given.
    PathForbidden,
    /// A place that the box fills itself.
    PathReserved,
    /// The working directory is not where a box works.
    WorkingDirectory,
    /// A number that no layer may contain.
    LimitInvalid,
    /// More than the layers before allow.
    LimitExceeded,
    /// More of the network than the layers before allow.
    NetExceeded,
    /// A network where boxes cannot have one.
    NetUnavailable,
    /// Code that destroys what it runs on.
    CodeDestructive,
    /// A box that is weaker than what is demanded.
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
    fn the_strictest_opinion_wins() {
        use Strictness::{Allow, Ask, Deny};
        assert!(Deny > Ask && Ask > Allow);
        assert_eq!([Allow, Deny, Ask].into_iter().max(), Some(Deny));
        assert_eq!([Allow, Ask, Allow].into_iter().max(), Some(Ask));
    }

    #[test]
    fn verdicts_know_their_strictness() {
        let ask = Verdict::Ask(super::Ask { reasons: vec!["it deletes files".into()], blocked: vec![], risk: None });
        let deny = Verdict::Deny(Denial::new(DenialCode::CommandEmpty, "no"));
        assert_eq!(ask.strictness(), Strictness::Ask);
        assert_eq!(deny.strictness(), Strictness::Deny);
    }

    #[test]
    fn a_denial_displays_as_its_sentence() {
        let denial = Denial::new(DenialCode::NulByte, "the command has a NUL").with_hint("remove it");
        assert_eq!(denial.to_string(), "the command has a NUL");
        assert_eq!(denial.hint.as_deref(), Some("remove it"));
    }
}
