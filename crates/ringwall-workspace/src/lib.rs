//! Files of users, agents, execs and sessions. The only crate that opens tenants' files.
//!
//! Every path is looked up beneath an open directory handle. Symlinks are not followed, except when
//! an agent's files are read, and then only within these files. Calls block; asynchronous callers
//! run them on a thread.
//!
//! Files written through the files API, skills and baselines are synced to disk before the rename
//! that makes them visible. Inputs, output and artifacts of an exec are not synced: the record in
//! the database is authoritative, and a power cut may lose the files of the last seconds.
//!
//! ```text
//! <root>/<user>/<agent>/                         owned by the server; no box sees this directory itself
//!   .baseline/index.json                         server: which files of skills/ are copies of a baseline
//!   .baseline/unreadable.json                    server: an index that could not be parsed
//!   files/, skills/                              workspace owner; mounted at /workspace/files, /workspace/skills
//!   sessions/<id>/                               server; contains `.used`, see `garbage`
//!   sessions/<id>/work/                          workspace owner; mounted at /workspace in that session
//!   .staging/                                    server: files before they are complete and while they are deleted
//!   .staging/<exec_id>/                          workspace owner; mounted at /workspace/artifacts while the exec runs
//!   .staging/<exec_id>.output/                   server: output of an exec that has no artifacts directory
//!   .staging/spare/                              workspace owner: an unused artifacts directory for the next exec
//!   projects/<project_id>/inputs/                server; mounted read-only at /workspace/inputs
//!   projects/<project_id>/work/                  workspace owner; mounted at /workspace/work
//!   projects/<project_id>/artifacts/<exec_id>/   server: stdout.txt, stderr.txt, meta.json, manifest.json and copies
//!                                                of the files that the box left in /workspace/artifacts
//! ```
//!
//! An exec makes three calls: [`Project::begin`] before it runs, [`ExecFiles::collect`] when all
//! its processes are dead, and [`Collected::finish`] when its outcome is known.

mod baselines;
mod content;
mod error;
mod exec_files;
mod fs;
#[doc(hidden)]
pub mod fuzzing;
mod garbage;
mod project;
mod relative_path;
mod session;
mod skills;
mod sweep;
mod tree;
mod usage;
mod workspaces;

pub use baselines::{Baselines, Layer, LayeredSkill, SyncState, Update};
pub use content::{Content, ContentError, Stamp, read_content, read_stamp};
pub use error::Error;
pub use exec_files::artifacts::{Artifact, OutputPart};
pub use exec_files::begin::ExecFiles;
pub use exec_files::collect::{Collected, Extent, Processes, SkipReason, Skipped};
pub use exec_files::finish::ArtifactFile;
pub use exec_files::inputs::Input;
pub use exec_files::output::{OutputFile, Stream};
pub use garbage::{GcLimits, GcMode, GcResult};
pub use project::{Directory, Project};
pub use relative_path::{PathProblem, RelativePath};
pub use session::files::{SESSION_DIRECTORIES, Session};
pub use session::list::{ListedSession, SessionCursor, SessionPage, SessionTimes};
pub use skills::{ArchiveError, ArchiveLimits, HealOutcome, SkillArchive, SkillName, SkillSummary, StagedSkills};
pub use sweep::{RecordEntry, SweepResult};
pub use tree::{
    AgentPath, Archive, Change, Download, FilesError, FilesErrorKind, Lines, Listing, Names, Removed, Section,
    StagedFile, Text, Tree,
};
pub use usage::Usage;
pub use workspaces::{Owner, Workspace, Workspaces};
