//! THE USE CASES: who asks, and in what order things happen; the same methods for every door.
//!
//! A door turns what it reads into an [`ExecRequest`] and a [`Principal`], and calls [`Service`]. Nothing here knows
//! HTTP, argv or a configuration file; nothing here runs a program except through `executor`, opens a tenant's file
//! except through `workspace`, or decides anything that `policy` decides. An exec is on record before its box is made,
//! and its one ending is on record before anybody is told of it.
//!
//! Reading order: the nouns (`origin`, `principal`, `request`, `view`), the state of a server (`service`, `live`, `queue`,
//! `settings`, `fixed`, `aio`), then an exec from its order to its ending (`order`, `submit`, `run_exec`, `grant`, `backend`,
//! `run_box`, `capture`,
//! `collect`, `outcome`, `end`), then the questions about it.

mod auth;
mod exec;
mod ops;
pub mod skills;

mod blocking;
mod boxes;
mod disk;
mod error;
mod health;
mod metrics;
mod random;
mod session_ref;
mod time;
mod workspace_locks;

mod aio;
mod service;
mod settings;

mod open;

mod agent_files;
mod approvals;
mod browser;
mod egress;
mod paths;
mod session;

pub use crate::browser::{BrowserActionView, BrowserAnswer, BrowserBegun, BrowserRequest, BrowserView};
pub use agent_files::{Address, Edit, Executed, Execution, Freed, SkillLayer, SkillUpload, Upload};
pub use approvals::{AllowedHost, Announcement, Answer, ApprovalView, Following, Gone, Verdict, Watched};
pub use auth::Auth;
pub use auth::digest_key::{ensure_head_key, head_key};
pub use auth::logins::{BegunLogin, HeldLogin, LOGIN_LASTS};
pub use auth::origin::{ClientClaim, Origin};
pub use auth::principal::Principal;
pub use auth::tickets::NewTicket;
pub use auth::token::{NewToken, create_token_offline};
pub use boxes::{Bundle, Language};
pub use egress::{ConnectionView, NetworkView};
pub use error::{AgentProblem, Error, ProblemKind, causes};
pub use exec::artifacts::{Artifacts, Observation, OutputPart};
pub use exec::code::CodeRequest;
pub use exec::events::{Event, EventCursor, EventKind};
pub use exec::invoke::InvokeOptions;
pub use exec::query::ExecFilter;
pub use exec::request::{ExecRequest, Idempotency};
pub use exec::submit::Submitted;
pub use exec::view::{ExecView, Usage};
pub use health::{Availability, Backends, Health, Host, WritableCheck};
pub use metrics::{Histogram, Metrics, Minute};
pub use open::Config;
pub use ops::overview::Overview;
pub use ops::prune::Pruned;
pub use paths::{
    AllowedPaths, Considered, NewSandboxPath, PathChange, PathControl, Preview, PreviewedPath, SandboxPath,
    SessionCommand, SessionExecuted, SwitchedPaths, WantedPath,
};
pub use ringwall_executor::WindowSize;
pub use ringwall_executor::pool::{Figures as PoolFigures, OnBusy};
pub use ringwall_record::{
    AgentId, ApprovalId, ApprovalKind, ApprovalStatus, AuditFilter, Confirmation, Cursor, Database, Digest, Entry,
    ExecId, ExecSummary, Finding, Holder, Limit, Page, Progress, Reason, Revocation, Scope, Status, Switch, Timestamp,
    Token as TokenInfo, TokenId, UserId, Verification,
};
pub use ringwall_workspace::{
    AgentPath, Archive, ArtifactFile, Download, GcMode, LayeredSkill, Lines, Listing, SessionCursor, SkillName,
    SkillSummary, Stream, Text,
};
pub use service::Service;
pub use session::code::{CodeBegun, CodeRan};
pub use session::context::{ContextAddress, ContextView};
pub use session::residents::{AfterInput, OpenedTerminal, ProcessOutput, Terminal, TerminalEnd, TerminalEvent};
pub use session::{SessionChange, SessionFilter, SessionList, SessionView};
pub use session_ref::SessionAddress;
pub use settings::{
    PinnedSettings, SettingsView, SkillNames, Source, Webhook, aio_service, docker_settings, setting_keys,
    setting_variable,
};
pub use time::now;
