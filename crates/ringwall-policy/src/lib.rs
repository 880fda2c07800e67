//! Pure policy decisions: may this request run, and within which limits?
//!
//! This crate does no I/O, reads no clock and has no async code. Facts about the machine are
//! arguments ([`Ceilings`]), so the same input always gives the same verdict and every rule can be
//! tested as a table.
//!
//! Rules on command lines and code are advice. The box enforces: a missed rule gives a command
//! nothing that its box does not have.
//!
//! Reading order: a [`Request`] and its [`Layers`] go into [`decide`], a [`Verdict`] comes out.
//! Only [`Verdict::Allow`] carries a [`Grant`], and a grant is the only input that a backend
//! accepts.

mod error;
mod field;
mod limits;

mod layer;
mod net;
mod reading;

mod merge;
pub mod profile;
mod settings;
mod snapshot;

mod arguments;
mod command;
mod cwd;
mod docker_image;
mod kind;
mod paths;
mod permission;
mod reach;
mod request;
mod session;

mod code;
mod decide;
mod verdict;

#[cfg(test)]
#[path = "../../ringwall-risk/src/shapes.rs"]
mod shapes;

pub use code::{Code, Consent, Isolation, SecurityMode, choose_isolation, requires_isolation};
pub use command::{ArgvCommand, CommandLine, CommandLists, CommandName, NamedFile, NamedFiles};
pub use cwd::check_cwd;
pub use decide::{Grant, decide, decide_code};
pub use docker_image::DockerImage;
pub use error::Error;
pub use field::Field;
pub use kind::{ExecKind, check_kind};
pub use layer::{Layer, LayerName, Requirement};
pub use limits::{Limits, Quantity, UNLIMITED};
pub use merge::{Ceilings, EffectivePolicy, Layers, merge};
pub use net::{
    BrowserKind, ExternalMode, NOT_PUBLIC, Net, NetEntry, NetHost, NetList, NetMode, NetRequest, UnknownHost,
    check_page, is_web_port, metadata_use, page_host, special_use,
};
pub use permission::{Access, FilePermissions, ProjectAccess, ProjectDir};
pub use reach::{FileUse, HostPath, NewEntry, PathStyle, blocked, is_in_every_box, normalise, normalise_entry};
pub use request::{AgentMounts, ImageName, Owner, ProjectMounts, Request, Root, Secret, Workspace};
pub use session::{AllowedPath, HostView, NamedPath, PathAccess, PathControl, Rights, SessionMounts, is_never_mounted};
pub use settings::{
    ApprovalTimeoutSeconds, AuditRetentionDays, BrowserIdleSeconds, BrowserMax, BrowserMemoryMb, BrowserPids,
    ConcurrentExecs, ConcurrentExecsPerUser, ExecRetentionDays, PoolAcquireSeconds, PoolIdleSeconds, PoolMax,
    PoolMaxUses, PoolMin, QueuedExecs, QuotaFiles, QuotaMb, SessionMaxMb, SessionRetentionHours, SkillEntriesMax,
    UnpackedMaxMb, UploadMaxMb, check_settings,
};
pub use verdict::{Ask, AskedRisk, Denial, DenialCode, Strictness, Verdict};
