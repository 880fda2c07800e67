//! What a person is asked, and how the answer gets back to the exec that waits for it.
//!
//! An exec asks ([`Service::ask`](crate::Service)) and waits without a slot or a lock; the answer is an input of the next
//! decision, never a way round it. The record is the truth: an answer counts when it is committed there, and exactly one
//! is. What is held here is what nobody needs after a restart: who waits, who follows, and when the time is up. After a
//! restart whatever was pending has expired, because nobody waits for it any more.

mod answer;
mod ask;
mod covered_files;
mod desk;
mod expire;
mod follow;
mod hosts;
mod question;
mod view;
mod wait;

pub use answer::{Answer, Verdict};
pub use follow::{Announcement, Following, Gone, Watched};
pub use hosts::AllowedHost;
pub use view::ApprovalView;

pub(crate) use covered_files::{Coverage, Covering};
pub(crate) use desk::Desk;
pub(crate) use question::{Decision, Question, StillStands, Waiting};
pub(crate) use wait::{APPROVAL_EXPIRED, DENIED_BY_PERSON};
