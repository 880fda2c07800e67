//! Results of a verification: findings, notes, and the state of the head's signature.

use std::fmt;

use crate::audit::entry::Link;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// The entry's content does not match its hash.
    Altered { seq: i64 },
    /// The entry's hash matches with the number `from`.
    Moved { seq: i64, from: i64 },
    /// The entry's columns cannot be decoded.
    Unreadable { seq: i64 },
    /// The entry's hash matches, but it does not follow the entry before it: one of the two was
    /// rewritten.
    Unlinked { seq: i64 },
    /// These entries are missing.
    Removed { first: i64, last: i64 },
    /// These entries are missing at the end.
    TailRemoved { first: i64, last: i64 },
    /// The stored head is not `seq`, the newest entry.
    HeadWrong { seq: i64 },
    /// The exec's row differs from what this entry recorded.
    ExecAltered { seq: i64, exec_id: String },
    /// An entry before the chain's start, where retention removed all entries.
    Planted { seq: i64 },
    /// No entry records the intent of this exec.
    ExecUnrecorded { exec_id: String },
    /// The exec has ended, but no entry records its outcome.
    OutcomeUnrecorded { exec_id: String },
    /// The approval's row differs from what this entry recorded.
    ApprovalAltered { seq: i64, id: String },
    /// No entry records the opening or the answer of this approval.
    ApprovalUnrecorded { id: String },
    /// The row differs from what this entry recorded.
    RowAltered { table: &'static str, key: String, seq: i64 },
    /// No entry records this row.
    RowUnrecorded { table: &'static str, key: String },
    /// The row is missing, but this entry recorded it and no later one its removal.
    RowRemoved { table: &'static str, key: String, seq: i64 },
    /// The entry's `filed` column was changed, so that lists do not show the entry.
    Hidden { seq: i64 },
    /// The oldest entries up to this one are missing, and no entry of retention says so.
    StartRemoved { through: i64 },
    /// The head has no signature.
    HeadUnsigned,
    /// The head's signature was not made with this key for this head.
    HeadForged,
    /// Before this entry was written, the writer found a head that it had not signed.
    HeadReplaced { seq: i64, found: String, through: i64 },
    /// The chain does not contain the head that was stored elsewhere.
    KeptHeadMissing { kept: Link },
    /// Retention removed the entry of the head that was stored elsewhere.
    KeptHeadTooOld { kept: Link, start: i64 },
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Altered { seq } => write!(formatter, "entry {seq} was altered"),
            Finding::Moved { seq, from } => write!(formatter, "entry {seq} was moved; it was written as entry {from}"),
            Finding::Unreadable { seq } => write!(formatter, "entry {seq} was altered so that it cannot be read"),
            Finding::Unlinked { seq } => {
                write!(formatter, "entry {seq} does not follow the one before it; one of the two was written anew")
            }
            Finding::Removed { first, last } => write!(formatter, "entries {first} to {last} were removed"),
            Finding::TailRemoved { first, last } => {
                write!(formatter, "the newest entries, {first} to {last}, were removed")
            }
            Finding::HeadWrong { seq } => write!(formatter, "the stored head is not entry {seq}, the newest"),
            Finding::ExecAltered { seq, exec_id } => {
                write!(formatter, "exec {exec_id} was altered after entry {seq} recorded it")
            }
            Finding::Planted { seq } => write!(formatter, "entry {seq} was planted before the chain's start"),
            Finding::ExecUnrecorded { exec_id } => write!(formatter, "exec {exec_id} has no intent in the chain"),
            Finding::OutcomeUnrecorded { exec_id } => write!(formatter, "exec {exec_id} has no outcome in the chain"),
            Finding::ApprovalAltered { seq, id } => {
                write!(formatter, "approval {id} was altered after entry {seq} recorded it")
            }
            Finding::ApprovalUnrecorded { id } => {
                write!(formatter, "approval {id}, or its answer, is not recorded in the chain")
            }
            Finding::RowAltered { table, key, seq } => {
                write!(formatter, "row {key} of {table} was altered after entry {seq} recorded it")
            }
            Finding::RowUnrecorded { table, key } => {
                write!(formatter, "row {key} of {table} is not recorded in the chain")
            }
            Finding::RowRemoved { table, key, seq } => {
                write!(formatter, "row {key} of {table} was removed after entry {seq} recorded it")
            }
            Finding::Hidden { seq } => write!(formatter, "entry {seq} was altered so that lists do not show it"),
            Finding::StartRemoved { through } => {
                write!(formatter, "the oldest entries, up to {through}, were removed, but not by retention")
            }
            Finding::HeadUnsigned => formatter.write_str("the chain's head is not signed: its signature was removed"),
            Finding::HeadForged => formatter.write_str(
                "the chain's head is not signed with this server's key: the newest entries were removed or rewritten, \
                 or digest.key is another one",
            ),
            Finding::HeadReplaced { seq, found, through } => write!(
                formatter,
                "before entry {seq} the server found another head than it had signed ({found}), ending with entry {through}"
            ),
            Finding::KeptHeadMissing { kept: Link { seq, hash } } => {
                write!(formatter, "the chain does not contain entry {seq} with hash {hash}, the head to compare with")
            }
            Finding::KeptHeadTooOld { kept: Link { seq, .. }, start } => write!(
                formatter,
                "entry {seq}, the head to compare with, was removed by retention, which ended with entry {start}; \
                 compare with a newer head"
            ),
        }
    }
}

/// An observation that is no violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The store was opened without a key.
    SignatureNotChecked,
    /// Rows that are older than the chain's start.
    NotCompared { execs: u64, approvals: u64, start: i64 },
    /// A row of `sandbox_paths` was changed with SQL, which is supported.
    PathByHand { id: String },
    /// Path control was switched with SQL, which is supported.
    SwitchByHand,
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::SignatureNotChecked => formatter.write_str(
                "the head's signature was not checked, because the data directory has no readable digest.key; \
                 a removed tail is found only by comparing with a head that was stored elsewhere",
            ),
            Note::NotCompared { execs, approvals, start } => write!(
                formatter,
                "{execs} execs and {approvals} approvals are older than the chain's start, entry {start}, and were not compared"
            ),
            Note::PathByHand { id } => {
                write!(formatter, "row {id} of sandbox_paths was added, changed or removed by hand")
            }
            Note::SwitchByHand => formatter.write_str("path control was switched by hand"),
        }
    }
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
