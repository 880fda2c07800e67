//! THE FILES: the only room that opens tenants' files, and only beneath directory handles.
//!
//! Nothing here joins strings and opens the result: a name is looked up beneath an open directory, through no link.
//! Calls block; whoever is asynchronous gives them a thread. What gets its name in one step has its bytes on the disk
//! before; nothing else is forced there: the record in the database is the durable truth, and what a power cut took were
//! the last seconds' alone.
//!
//! ```text
//! <root>/<user>/<agent>/                     the server's; a box never sees these directories themselves
//!   .baseline/index.json                     the server's: what in skills/ is a copy of a baseline; unreadable.json beside it
//!                                            is one that could not be read
//!   files/, skills/                          the workspace's own; the box's /workspace/files and /workspace/skills
//!   sessions/<id>/                           the server's, with the file `.used`; see `garbage`
//!   sessions/<id>/work/                      the workspace's own; the box's /workspace in that session
//!   .staging/<exec_id>/                      the box's while it runs: its /workspace/artifacts
//!   .staging/spare/                          one that its box left as it was, for the next exec
//!   projects/<project_id>/inputs/            the server's; the box's /workspace/inputs, read-only
//!   projects/<project_id>/work/              the workspace's own; the box's /workspace/work
//!   projects/<project_id>/artifacts/<exec_id>/   the server's: stdout.txt, stderr.txt, meta.json, manifest.json,
//!                                            and copies of the files that the box left
//! ```
//!
//! One exec in three calls: [`Project::begin`] before it, [`ExecFiles::collect`] when all its processes are dead,
//! [`Collected::finish`] when its outcome is known.

mod error;
mod exec_files;
mod exec_id;
mod fs;
mod name;
mod relative_path;
mod session;

mod content;

mod project;
mod workspaces;

mod sweep;

mod garbage;
mod usage;

mod baselines;
mod skills;
mod tree;

pub use baselines::{Baselines, Layer, LayeredSkill, Standing, Update};
pub use content::{Content, NoContent, Stamp, read_content, read_stamp};
pub use error::Error;
pub use exec_files::artifacts::{Artifact, OutputPart};
pub use exec_files::begin::ExecFiles;
pub use exec_files::collect::{Collected, Extent, Processes};
pub use exec_files::finish::ArtifactFile;
pub use exec_files::inputs::Input;
pub use exec_files::output::{OutputFile, Stream};
pub use exec_files::skipped::{SkipReason, Skipped};
pub use exec_id::ExecId;
pub use garbage::{Doing, Found, Garbage};
pub use name::{AgentId, ProjectId, SessionId, UserId};
pub use project::{Directory, Project};
pub use relative_path::{PathProblem, RelativePath};
pub use session::files::{SESSION_DIRECTORIES, Session};
pub use session::list::{FoundSession, SessionMark, SessionPage, SessionTimes};
pub use skills::{
    ArchiveLimits, ArchiveRefusal, DeletedSkill, Healing, PackedSkills, SkillName, SkillSummary, StagedSkills,
};
pub use sweep::{Recorded, Swept};
pub use tree::{
    AgentPath, Archive, Change, Download, Lines, Listing, Names, Refusal, RefusalKind, Removed, Section, StagedFile,
    Text, Tree,
};
pub use usage::Usage;
pub use workspaces::{Owner, Workspace, Workspaces};
