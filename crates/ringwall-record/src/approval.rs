//! Types of approvals.
//!
//! The question of an approval never changes, and neither does its one answer (approved,
//! remembered, denied, expired or cancelled). The names of the variants are the same in the
//! database, the API and the audit chain.

use std::fmt;
use std::str::FromStr;

use ringwall_ids::{AgentId, ApprovalId, ExecId, UserId};
use serde::{Deserialize, Serialize};

use crate::audit::entry::Author;
use crate::digest::Digest;
use crate::error::Error;
use crate::page::Scope;
use crate::paths::RememberedPath;
use crate::timestamp::Timestamp;

macro_rules! text_enum {
    ($(#[$doc:meta])* $type:ident, $what:literal, $($(#[$of:meta])* $variant:ident = $word:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, utoipa::ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $type {
            $($(#[$of])* $variant),+
        }

        impl $type {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let known = Self::ALL.iter().copied().find(|known| known.as_str() == text);
                known.ok_or(Error::NameMalformed { what: $what })
            }
        }
    };
}

text_enum! {
    /// The subject of the approval: a path, risky code or a network host
    ApprovalKind, "a kind of approval: path, risk or network",
    Path = "path",
    Risk = "risk",
    Network = "network",
}

text_enum! {
    ApprovalStatus, "an approval's status: pending, approved, remembered, denied, expired or cancelled",
    Pending = "pending",
    Approved = "approved",
    Remembered = "remembered",
    Denied = "denied",
    Expired = "expired",
    Cancelled = "cancelled",
}

text_enum! {
    /// From the lowest to the highest level
    RiskLevel, "a risk level: safe, low, medium, high or critical",
    Safe = "safe",
    Low = "low",
    Medium = "medium",
    High = "high",
    Critical = "critical",
}

/// The final statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettledStatus {
    Approved,
    Remembered,
    Denied,
    Expired,
    Cancelled,
}

impl From<SettledStatus> for ApprovalStatus {
    fn from(settled: SettledStatus) -> Self {
        match settled {
            SettledStatus::Approved => Self::Approved,
            SettledStatus::Remembered => Self::Remembered,
            SettledStatus::Denied => Self::Denied,
            SettledStatus::Expired => Self::Expired,
            SettledStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// The files that a command line names, and whether the approval covers their content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApprovalFiles {
    pub covered: Vec<CoveredFile>,
    pub not_covered: Vec<UncoveredFile>,
}

/// A file whose content is part of the approval
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CoveredFile {
    /// The path in the box
    pub path: String,
    pub sha256: String,
    pub size: u64,
    /// True if no program can change the file between the last check and the end of the command. If
    /// false, it is checked only at the answer and right before the start
    pub pinned: bool,
    /// The text of a script or sourced file; absent for a binary
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptText>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ScriptText {
    /// At most 64 KiB for all scripts of an approval together
    pub text: String,
    /// False if the text is truncated
    pub is_whole: bool,
}

/// A file that may change after the answer
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UncoveredFile {
    pub path: String,
    pub why: Uncovered,
}

/// Why a file is not covered, or not until the command has ended
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Uncovered {
    Written,
    Directory,
    Link,
    Special,
    Unreadable,
    Missing,
    Changing,
    Unclear,
    NotAllowed,
    TooMany,
    TooLarge,
    OpenedByScript,
    /// Covered and in an allowed path: compared right before the start, but not protected from
    /// later changes
    NotPinned,
    /// Files that approved code opens or starts
    OpenedByCode,
}

impl Uncovered {
    /// The text that clients show.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Written => "only written",
            Self::Directory => "a directory",
            Self::Link => "reached through a link",
            Self::Special => "a FIFO, a socket or a device",
            Self::Unreadable => "not readable for the box",
            Self::Missing => "does not exist yet",
            Self::Changing => "written while it was read",
            Self::Unclear => "a pattern, or a value that is known only when the command runs",
            Self::NotAllowed => "not allowed yet, so it was not read",
            Self::TooMany => "beyond the limit of 16 files",
            Self::TooLarge => "beyond the limit of 64 MB in all",
            Self::OpenedByScript => "files that this script opens or runs itself",
            Self::NotPinned => {
                "in an allowed path: compared right before the start, and another program that may write there can \
                 change it afterwards"
            }
            Self::OpenedByCode => "files that the code opens or starts",
        }
    }
}

/// The question of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    pub exec_id: ExecId,
    pub user_id: UserId,
    pub agent_id: AgentId,
    pub session_id: String,
    pub command: String,
    pub code: Option<String>,
    /// The paths that a remembered answer would add to the allowed paths.
    pub requested_paths: Vec<String>,
    pub blocked_paths: Vec<String>,
    pub risk_level: RiskLevel,
    pub patterns: Vec<String>,
    pub files: ApprovalFiles,
    /// The digest of the action that is to be approved.
    pub digest: Digest,
    /// The id of the token that made the request.
    pub asked_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// An approval as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub asked: NewApproval,
    pub status: ApprovalStatus,
    pub answered_at: Option<Timestamp>,
    pub answered_by: Option<String>,
    pub reason: Option<String>,
}

/// An answer, an expiry or a cancellation of an approval.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: SettledStatus,
    pub at: Timestamp,
    pub author: Author,
    pub reason: Option<String>,
    pub remembered: Remembering,
}

/// The paths or hosts that an answer adds, in the transaction that records the answer.
#[derive(Debug, Clone, Default)]
pub enum Remembering {
    #[default]
    Nothing,
    Paths(Vec<RememberedPath>),
    /// Hosts that all boxes of this user may reach.
    Hosts {
        user: UserId,
        entries: Vec<String>,
    },
}

/// The result of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    Recorded(Box<Approval>),
    /// The approval has another answer already, which stays.
    AlreadySettled(Box<Approval>),
    Unknown,
}

/// Selects the approvals of a list. An absent field does not restrict it.
#[derive(Debug, Clone)]
pub struct ApprovalFilter {
    pub scope: Scope,
    pub status: Option<ApprovalStatus>,
    pub exec_id: Option<ExecId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_status_text_round_trips() {
        for status in ApprovalStatus::ALL {
            assert_eq!(status.as_str().parse::<ApprovalStatus>().unwrap(), *status);
            assert_eq!(serde_json::json!(status), status.as_str());
        }
        assert!(RiskLevel::Safe < RiskLevel::Critical);
        for bad in ["", "Pending", "pending "] {
            assert!(bad.parse::<ApprovalStatus>().is_err());
        }
    }
}
