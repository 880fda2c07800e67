//! Errors of the crate: the failed operation and its subject.
//!
//! Messages name paths relative to the workspace (`projects/p/inputs`). Only errors about the root
//! show a path of the host, because the operator chose it. Text from clients is escaped and
//! truncated by [`quote`].

use std::io;
use std::path::PathBuf;

use ringwall_ids::{AgentId, ExecId, IdError, ProjectId, RandomError};

use crate::exec_files::output::Stream;
use crate::relative_path::{PathProblem, RelativePath};
use crate::skills::{ArchiveError, SkillName};
use crate::tree::FilesError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("the cursor is invalid; pass the cursor that the previous page of the session list returned")]
    CursorMalformed,
    #[error("the path {given} {problem}")]
    PathMalformed { given: String, problem: PathProblem },
    /// Has the texts that the contract of the files API fixes.
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error("could not access the agent's files")]
    UseTree(#[source] io::Error),
    #[error(transparent)]
    Random(#[from] RandomError),

    #[error("could not open the workspaces in {}", path.display())]
    OpenRoot { path: PathBuf, source: io::Error },
    #[error("{} belongs to user {owner}, not to the server; choose another directory or change its owner", path.display())]
    RootForeign { path: PathBuf, owner: u32 },
    #[error("could not open or create the directory {path}")]
    OpenDirectory { path: String, source: io::Error },
    #[error("there is no project {0}")]
    ProjectMissing(ProjectId),

    #[error("the input {0} is given twice")]
    InputTwice(RelativePath),
    #[error("the input {path} cannot be written: {parent} is not a directory")]
    InputBelowFile { path: RelativePath, parent: String },
    #[error("the input {0} cannot be written: a directory has that name")]
    InputIsDirectory(RelativePath),
    #[error("could not write the input {path}")]
    WriteInput { path: RelativePath, source: io::Error },

    #[error("files of the exec {0} exist already")]
    ExecExists(ExecId),
    #[error("files of the exec {0} do not exist")]
    ExecMissing(ExecId),
    #[error("could not create the files of the exec {exec}")]
    Begin { exec: ExecId, source: io::Error },
    #[error("could not collect {subject} of the exec {exec}")]
    Collect { exec: ExecId, subject: String, source: io::Error },
    #[error("could not write {name} of the exec {exec}")]
    Finish { exec: ExecId, name: &'static str, source: io::Error },
    #[error("could not list the artifacts of the exec {exec}")]
    ListArtifacts { exec: ExecId, source: io::Error },
    #[error("the exec {exec} has no artifact {path}")]
    ArtifactMissing { exec: ExecId, path: RelativePath },
    #[error("{path} of the exec {exec} is not a regular file")]
    ArtifactIrregular { exec: ExecId, path: RelativePath },
    #[error("could not open {path} of the exec {exec}")]
    OpenArtifact { exec: ExecId, path: RelativePath, source: io::Error },
    #[error("could not read {stream} of the exec {exec}")]
    ReadOutput { exec: ExecId, stream: Stream, source: io::Error },
    #[error("could not read an uploaded archive")]
    ReadArchive(#[source] io::Error),
    #[error("could not unpack {path}")]
    Unpack { path: RelativePath, source: io::Error },
    #[error("could not store an upload")]
    Stage(#[source] io::Error),
    #[error("could not install the skill {skill}")]
    InstallSkill { skill: SkillName, source: io::Error },
    #[error("could not read the skill {skill}")]
    ReadSkill { skill: SkillName, source: io::Error },
    #[error("could not list the skills")]
    ListSkills(#[source] io::Error),
    #[error("could not {operation}")]
    Baseline { operation: &'static str, source: io::Error },
    #[error(
        "could not read which baselines the agent {agent} has; restore `baselines/.current/{agent}.json` and the versions \
         that it names from a backup, or delete that file, restart the server and upload the agent's baselines again"
    )]
    BaselinesUnreadable { agent: AgentId, source: io::Error },
    #[error("could not measure the disk usage of a workspace")]
    Measure(#[source] io::Error),
    #[error("could not remove {subject}")]
    Remove { subject: String, source: io::Error },
}

impl From<ArchiveError> for Error {
    fn from(error: ArchiveError) -> Self {
        Error::Files(error.into())
    }
}
