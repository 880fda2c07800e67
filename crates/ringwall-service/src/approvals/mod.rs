//! Approvals: an exec asks a question, waits for a person's answer, and is decided again with it.
//!
//! An exec asks with `Service::ask` and waits without holding a slot or a lock. An answer is an
//! input of the next policy decision; it never bypasses the policy. The database is authoritative:
//! an answer counts when it is committed there, and each question gets exactly one. This module
//! keeps only state that is useless after a restart: the waiting execs, the followers and the
//! deadlines. The next start expires all pending questions, because the execs that asked them are
//! gone.

mod answer;
mod covered_files;
mod hosts;
mod open_approvals;
mod question;
mod view;
mod wait;

pub use answer::{Answer, Verdict};
pub use hosts::AllowedHost;
pub use open_approvals::{Announcement, ApprovalStream, ApprovalTopic, StreamEnd};
pub use view::ApprovalView;

pub(crate) use covered_files::{Coverage, Covering};
pub(crate) use open_approvals::OpenApprovals;
pub(crate) use question::{Decision, Question, StillStands, Waiting};
pub(crate) use wait::{APPROVAL_EXPIRED, DENIED_BY_PERSON, PendingApproval};
