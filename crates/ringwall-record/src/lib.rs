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

mod digest;
mod error;
mod id;
mod status;
mod timestamp;

mod approval;
mod audit;
mod exec;
mod page;

mod columns;
mod rows;
mod statement;

mod database;
mod driver;
mod schema;
mod sqlite;
mod transaction;

mod head;
mod ledger;
mod store;
mod writer;

mod entries;
mod find;
mod finding;
mod finish;
mod intend;
mod prune;
mod verify;
mod verify_rows;

mod approvals;
mod backup;
mod browser;
mod identities;
mod networks;
mod paths;
mod policies;
mod remembered;
mod sessions;
mod settings;
mod tokens;
mod usage;

pub use approval::{
    Answer, Approval, ApprovalFiles, ApprovalFilter, ApprovalKind, ApprovalStatus, CoveredFile, NewApproval,
    Remembering, RiskLevel, ScriptText, Settled, SettledAs, Uncovered, UncoveredFile,
};
pub use audit::{Author, Entry, Event, Link};
pub use browser::{BrowserAction, BrowserEnding, BrowserStatus, NewBrowserAction};
pub use database::Database;
pub use digest::Digest;
pub use entries::AuditFilter;
pub use error::Error;
pub use exec::{Command, Ending, Exec, Finish, Idempotency, Intent, Kept, NewExec, Reason, Start, Summary};
pub use finding::{Finding, Note, Signature};
pub use finish::Whose;
pub use head::HeadKey;
pub use id::{AgentId, ApprovalId, ExecId, TokenId, UserId};
pub use networks::{ExecNetwork, NetHostEntry};
pub use page::{Cursor, Filter, Limit, Page, Scope};
pub use paths::{Added, NewPath, PathChange, PathEntry, PathScope, RememberedPath, Switch};
pub use prune::Keep;
pub use sessions::{Confirmation, RuledSession, SessionName, SessionRules, SessionWord, UserWord, WordAuthor};
pub use settings::{Saved, Settings};
pub use status::{EndedAs, Status};
pub use store::Store;
pub use timestamp::Timestamp;
pub use tokens::{Holder, NewToken, Revocation, Token};
pub use verify::{Progress, Verification};
