//! The record: execs, approvals, tokens, settings and the audit chain, in SQLite or PostgreSQL.
//!
//! The only crate with SQL. [`Store::intend`] puts an exec on disk before its box is created, and
//! [`Store::finish`] records exactly one outcome. Both, and every change of rights and rules, are
//! also entries of a hash chain, in the same transaction; [`Store::verify`] checks the whole chain.
//!
//! SQLite in a file is the default, PostgreSQL is used by URL; both get the same statements. This
//! crate makes no policy decisions and reads no wall clock. It never gets the text of a token or
//! the value of an environment variable. It does not authenticate: a [`Scope`] limits what a read
//! returns.
//!
//! All writes go through one thread (`writer`), reads through a pool of read-only connections
//! (`db`). Start reading at [`Store`] and `writer`; each other module adds methods to [`Store`] for
//! its tables.

mod approvals;
mod audit;
mod browser;
mod db;
mod digest;
mod error;
mod exec;
mod identities;
mod networks;
mod page;
mod paths;
mod prune;
mod read_cache;
mod sessions;
mod settings;
mod store;
mod text_enum;
mod timestamp;
mod tokens;
mod usage;
mod writer;

pub use approvals::{
    Answer, Approval, ApprovalFiles, ApprovalFilter, ApprovalKind, ApprovalStatus, CoveredFile, NewApproval,
    Remembering, RiskLevel, ScriptText, Settled, SettledStatus, Uncovered, UncoveredFile,
};
pub use audit::entries::AuditFilter;
pub use audit::entry::{Author, Entry, Event, Link};
pub use audit::finding::{Finding, Note, Signature};
pub use audit::head::HeadKey;
pub use audit::verify::{Progress, Verification};
pub use browser::{BrowserAction, BrowserOutcome, BrowserStatus, NewBrowserAction};
pub use db::database::Database;
pub use digest::Digest;
pub use error::Error;
pub use exec::finish::ExecOwner;
pub use exec::rows::{
    Exec, ExecCommand, ExecOutcome, ExecSummary, FinishResult, Idempotency, IntentResult, NewExec, Reason, Start,
    StoredOutput,
};
pub use exec::status::{FinalStatus, Status};
pub use networks::{ExecNetwork, NetHostEntry};
pub use page::{Cursor, ExecListFilter, Limit, Page, Scope};
pub use paths::{Added, NewPath, PathChange, PathEntry, PathScope, RememberedPath, Switch};
pub use prune::Keep;
pub use sessions::{AuthorRules, Confirmation, RulesAuthor, SessionKey, SessionRules, SessionWithRules, UserRules};
pub use settings::{Saved, Settings};
pub use store::Store;
pub use timestamp::Timestamp;
pub use tokens::{Holder, NewToken, Revocation, Token};
