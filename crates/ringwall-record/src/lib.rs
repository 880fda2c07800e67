//! THE MEMORY: the only room that knows SQL.
//!
//! What is about to happen is on disk before it happens, and what became of it afterwards: [`Store::intend`] before a
//! box is made, [`Store::finish`] after it is gone, exactly one ending for each. Every such fact is also an entry in a
//! chain of hashes, in the same transaction, which [`Store::verify`] reads from end to end.
//!
//! SQLite in a file by default, PostgreSQL by URL; the same statements for both. This crate decides nothing, reads no
//! clock, never sees the text of a token or the value of an environment variable, and never asks who is asking: a
//! [`Scope`] says what can be seen.
//!
//! Reading order: the nouns (`exec`, `audit`, `tokens`, …), then how they are said to a database (`statement`,
//! `driver`), how they are written (`writer`, `ledger`), and the verbs.

mod audit;
mod db;
mod digest;
mod error;
mod exec;
mod id;
mod timestamp;
mod writer;

mod approval;
mod page;

mod store;

mod prune;

mod approvals;
mod browser;
mod identities;
mod networks;
mod paths;
mod remembered;
mod sessions;
mod settings;
mod tokens;
mod usage;

pub use approval::{
    Answer, Approval, ApprovalFiles, ApprovalFilter, ApprovalKind, ApprovalStatus, CoveredFile, NewApproval,
    Remembering, RiskLevel, ScriptText, Settled, SettledAs, Uncovered, UncoveredFile,
};
pub use audit::entries::AuditFilter;
pub use audit::entry::{Author, Entry, Event, Link};
pub use audit::finding::{Finding, Note, Signature};
pub use audit::head::HeadKey;
pub use audit::verify::{Progress, Verification};
pub use browser::{BrowserAction, BrowserEnding, BrowserStatus, NewBrowserAction};
pub use db::database::Database;
pub use digest::Digest;
pub use error::Error;
pub use exec::exec::{Command, Ending, Exec, Finish, Idempotency, Intent, Kept, NewExec, Reason, Start, Summary};
pub use exec::finish::Whose;
pub use exec::status::{EndedAs, Status};
pub use id::{AgentId, ApprovalId, ExecId, TokenId, UserId};
pub use networks::{ExecNetwork, NetHostEntry};
pub use page::{Cursor, Filter, Limit, Page, Scope};
pub use paths::{Added, NewPath, PathChange, PathEntry, PathScope, RememberedPath, Switch};
pub use prune::Keep;
pub use sessions::{Confirmation, RuledSession, SessionName, SessionRules, SessionWord, UserWord, WordAuthor};
pub use settings::{Saved, Settings};
pub use store::Store;
pub use timestamp::Timestamp;
pub use tokens::{Holder, NewToken, Revocation, Token};
