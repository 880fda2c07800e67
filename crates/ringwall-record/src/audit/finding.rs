//! Results of a verification: findings, notes, and the state of the head's signature.

use crate::audit::entry::Link;

/// A violation. The `Display` text is what users see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    #[error("entry {seq} was altered")]
    Altered { seq: i64 },
    /// The entry's hash matches with the number `from`.
    #[error("entry {seq} was moved; it was written as entry {from}")]
    Moved { seq: i64, from: i64 },
    /// The entry's columns cannot be decoded.
    #[error("entry {seq} was altered so that it cannot be read")]
    Unreadable { seq: i64 },
    #[error("entry {seq} does not follow the one before it; one of the two was written anew")]
    Unlinked { seq: i64 },
    #[error("entries {first} to {last} were removed")]
    Removed { first: i64, last: i64 },
    #[error("the newest entries, {first} to {last}, were removed")]
    TailRemoved { first: i64, last: i64 },
    #[error("the stored head is not entry {seq}, the newest")]
    HeadWrong { seq: i64 },
    #[error("exec {exec_id} was altered after entry {seq} recorded it")]
    ExecAltered { seq: i64, exec_id: String },
    /// Retention removed all entries before the chain's start.
    #[error("entry {seq} was planted before the chain's start")]
    Planted { seq: i64 },
    #[error("exec {exec_id} has no intent in the chain")]
    ExecUnrecorded { exec_id: String },
    /// The exec has ended.
    #[error("exec {exec_id} has no outcome in the chain")]
    OutcomeUnrecorded { exec_id: String },
    #[error("approval {id} was altered after entry {seq} recorded it")]
    ApprovalAltered { seq: i64, id: String },
    #[error("approval {id}, or its answer, is not recorded in the chain")]
    ApprovalUnrecorded { id: String },
    #[error("row {key} of {table} was altered after entry {seq} recorded it")]
    RowAltered { table: &'static str, key: String, seq: i64 },
    #[error("row {key} of {table} is not recorded in the chain")]
    RowUnrecorded { table: &'static str, key: String },
    /// No later entry records the removal.
    #[error("row {key} of {table} was removed after entry {seq} recorded it")]
    RowRemoved { table: &'static str, key: String, seq: i64 },
    /// The entry's `filed` column was changed.
    #[error("entry {seq} was altered so that lists do not show it")]
    Hidden { seq: i64 },
    #[error("the oldest entries, up to {through}, were removed, but not by retention")]
    StartRemoved { through: i64 },
    #[error("the chain's head is not signed: its signature was removed")]
    HeadUnsigned,
    #[error(
        "the chain's head is not signed with this server's key: the newest entries were removed or rewritten, or \
         digest.key is another one"
    )]
    HeadForged,
    #[error(
        "before entry {seq} the server found another head than it had signed ({found}), ending with entry {through}"
    )]
    HeadReplaced { seq: i64, found: String, through: i64 },
    #[error("the chain does not contain entry {} with hash {}, the head to compare with", kept.seq, kept.hash)]
    KeptHeadMissing { kept: Link },
    #[error(
        "entry {}, the head to compare with, was removed by retention, which ended with entry {start}; compare with a \
         newer head", kept.seq
    )]
    KeptHeadTooOld { kept: Link, start: i64 },
}

/// An observation that is no violation. The `Display` text is what users see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// The store was opened without a key.
    #[error(
        "the head's signature was not checked, because the data directory has no readable digest.key; a removed tail \
         is found only by comparing with a head that was stored elsewhere"
    )]
    SignatureNotChecked,
    #[error(
        "{execs} execs and {approvals} approvals are older than the chain's start, entry {start}, and were not compared"
    )]
    NotCompared { execs: u64, approvals: u64, start: i64 },
    /// A row of `sandbox_paths` was changed with SQL, which is supported.
    #[error("row {id} of sandbox_paths was added, changed or removed by hand")]
    PathByHand { id: String },
    /// Path control was switched with SQL, which is supported.
    #[error("path control was switched by hand")]
    SwitchByHand,
}

/// The result of the check of the head's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// Made with our key for this head, or the chain is empty.
    Valid,
    /// The head has a signature, but the store has no key.
    NotChecked,
    Missing,
    Invalid,
}

impl Signature {
    pub const fn as_str(self) -> &'static str {
        match self {
            Signature::Valid => "valid",
            Signature::NotChecked => "not_checked",
            Signature::Missing => "missing",
            Signature::Invalid => "invalid",
        }
    }
}
