//! The use cases of the server, independent of transport: permission checks and the order of steps.
//!
//! A transport (HTTP, MCP, CLI) parses a request, calls [`Service`] with a [`Principal`] and
//! formats the result. This crate knows no HTTP, argv or configuration file. It runs programs only
//! through `executor`, opens tenants' files only through `workspace` and leaves policy decisions to
//! `policy`. An exec is recorded before its box is created, and its single ending is recorded
//! before it is reported.
//!
//! Reading order: `auth`, `service` (the server's state), `settings`, then an exec in `exec/`
//! (`submit`, `queue`, `lifecycle`, `run`, `outcome`, `end`), then `session/`, `approvals/` and
//! `browser/`.

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
mod session_ref;
mod time;
mod workspace_locks;

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
pub use approvals::{
    AllowedHost, Announcement, Answer, ApprovalStream, ApprovalTopic, ApprovalView, StreamEnd, Verdict,
};
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
pub use exec::code::{CodeBegun, CodeRequest};
pub use exec::events::{Event, EventCursor, EventKind};
pub use exec::invoke::InvokeOptions;
pub use exec::query::ExecFilter;
pub use exec::spec::{ExecRequest, Idempotency};
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
pub use ringwall_ids::{AgentId, ApprovalId, ExecId, TokenId, UserId};
pub use ringwall_record::{
    ApprovalKind, ApprovalStatus, AuditFilter, Confirmation, Cursor, Database, Digest, Entry, ExecSummary, Finding,
    Holder, Limit, Page, Progress, Reason, Revocation, Scope, Status, Switch, Timestamp, Token as TokenInfo,
    Verification,
};
pub use ringwall_workspace::{
    AgentPath, Archive, ArtifactFile, Download, GcMode, LayeredSkill, Lines, Listing, SessionCursor, SkillName,
    SkillSummary, Stream, Text,
};
pub use service::Service;
pub use session::code::CodeRan;
pub use session::{
    AfterInput, ContextAddress, ContextView, OpenedTerminal, ProcessOutput, SessionChange, SessionFilter, SessionList,
    SessionView, Terminal, TerminalEnd, TerminalEvent,
};
pub use session_ref::SessionAddress;
pub use settings::{
    PinnedSettings, SettingsView, SkillNames, Source, Webhook, aio_service, docker_settings, setting_keys,
    setting_variable,
};
pub use time::now;
