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

pub mod skills;

mod error;
mod origin;
mod principal;
mod request;
mod view;

mod aio;
mod fixed;
mod live;
mod queue;
mod service;
mod settings;
mod settings_view;
mod skill_names;

mod change_settings;
mod schema;

mod digest_key;
mod logins;
mod open;
mod owner_token;
mod private_file;
mod tickets;
mod token;

mod excerpt;
mod line;
mod order;
mod submit;

mod backend;
mod briefly;
mod capture;
mod collect;
mod grant;
mod outcome;
mod pool;
mod run_box;
mod run_exec;

mod drain;
mod end;
mod prune;

mod artifacts;
mod events;
mod execs;

mod agents;
mod approvals;
mod browser;
mod code;
mod contexts;
mod egress;
mod paths;
mod residents;
mod sessions;

mod audit;
mod health;
mod invoke;
mod metrics;
mod overview;

pub use crate::browser::{BrowserActionView, BrowserAnswer, BrowserBegun, BrowserRequest, BrowserView};
pub use agents::{
    Address, AgentProblem, Edit, Executed, Execution, Freed, ProblemKind, SkillLayer, SkillUpload, Upload,
};
pub use approvals::{
    Announcement, Answer, ApprovalView, Considered, Following, Gone, Preview, PreviewedPath, Verdict, Watched,
};
pub use artifacts::{Artifacts, Observation, OutputPart};
pub use code::{CodeBegun, CodeRan, CodeRequest, Language};
pub use contexts::{Bundle, ContextAddress, ContextView};
pub use digest_key::{ensure_head_key, head_key};
pub use egress::{AllowedHost, ConnectionView, NetworkView};
pub use error::{Error, causes};
pub use events::{Event, EventCursor, EventKind};
pub use execs::ExecFilter;
pub use fixed::{Fixed, Source, setting_keys, setting_variable};
pub use health::{Availability, Backends, Health, Host, WritableCheck};
pub use invoke::InvokeOptions;
pub use logins::{BegunLogin, HeldLogin, LOGIN_LASTS};
pub use metrics::{Histogram, Metrics};
pub use open::{Auth, Config};
pub use origin::{ClientClaim, Origin};
pub use overview::{Minute, Overview};
pub use paths::{
    AllowedPaths, NewSandboxPath, PathChange, PathControl, SandboxPath, SessionCommand, SessionExecuted, SwitchedPaths,
    WantedPath,
};
pub use principal::Principal;
pub use prune::Pruned;
pub use request::{ExecRequest, Idempotency};
pub use residents::{AfterInput, OpenedTerminal, ProcessOutput, Terminal, TerminalEnd, TerminalEvent};
pub use ringwall_executor::WindowSize;
pub use ringwall_executor::pool::{Figures as PoolFigures, OnBusy};
pub use ringwall_record::{
    AgentId, ApprovalId, ApprovalKind, ApprovalStatus, AuditFilter, Confirmation, Cursor, Database, Digest, Entry,
    ExecId, Finding, Holder, Limit, Page, Progress, Reason, Revocation, Scope, Status, Summary as ExecSummary, Switch,
    Timestamp, Token as TokenInfo, TokenId, UserId, Verification,
};
pub use ringwall_workspace::{
    AgentPath, Archive, ArtifactFile, Doing, Download, LayeredSkill, Lines, Listing, SessionMark, SkillName,
    SkillSummary, Stream, Text,
};
pub use service::{Service, now};
pub use sessions::{SessionAddress, SessionChange, SessionFilter, SessionList, SessionView};
pub use settings::{Webhook, aio_service, docker_settings};
pub use settings_view::SettingsView;
pub use skill_names::SkillNames;
pub use submit::Submitted;
pub use tickets::NewTicket;
pub use token::{NewToken, create_token_offline};
pub use view::{ExecView, Usage};
