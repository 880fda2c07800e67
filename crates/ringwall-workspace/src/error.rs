//! What can go wrong with files, each with what failed and on what.
//!
//! Places are named as the outside knows them (`projects/p/inputs`), never by their physical path; the root alone is
//! named whole, to the operator who chose it. Everything quoted came from outside, so it is escaped and cut.

use std::io;
use std::path::PathBuf;

use crate::exec_files::output::Stream;
use crate::exec_id::ExecId;
use crate::name::{AgentId, ProjectId};
use crate::relative_path::{PathProblem, RelativePath};
use crate::skills::{ArchiveRefusal, SkillName};
use crate::tree::Refusal;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{given} is not {kind}: it takes 1 to 128 of the characters A-Z, a-z, 0-9, '.', '_' and '-', \
         the first a letter or a digit, and no '..'"
    )]
    NameMalformed { kind: &'static str, given: String },
    #[error("that is not a cursor that a list of sessions has given")]
    MarkMalformed,
    #[error("{given} cannot be an agent id, because it is the name of a route")]
    NameReserved { given: String },
    #[error("{given} is not an exec id: it is 'e_' and 16 to 64 of the digits 0-9 and a-f")]
    ExecIdMalformed { given: String },
    #[error("the path {given} {problem}")]
    PathMalformed { given: String, problem: PathProblem },
    /// In the words of the files' API.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("could not use the agent's files")]
    UseTree(#[source] io::Error),
    #[error("could not get random numbers from the kernel")]
    Randomness(#[source] io::Error),

    #[error("could not open the workspaces in {}", path.display())]
    OpenRoot {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} belongs to user {owner}, not to the server; choose another directory or change its owner", path.display())]
    RootForeign { path: PathBuf, owner: u32 },
    #[error("could not open or make the directory {place}")]
    OpenDirectory {
        place: String,
        #[source]
        source: io::Error,
    },
    #[error("there is no project {0}")]
    ProjectMissing(ProjectId),

    #[error("the input {0} is given twice")]
    InputTwice(RelativePath),
    #[error("the input {path} cannot be written: {parent} is not a directory")]
    InputBelowFile { path: RelativePath, parent: String },
    #[error("the input {0} cannot be written: a directory has that name")]
    InputIsDirectory(RelativePath),
    #[error("could not write the input {path}")]
    WriteInput {
        path: RelativePath,
        #[source]
        source: io::Error,
    },

    #[error("the exec {0} has files already")]
    ExecExists(ExecId),
    #[error("there are no files of the exec {0}")]
    ExecMissing(ExecId),
    #[error("could not make the files of the exec {exec}")]
    Begin {
        exec: ExecId,
        #[source]
        source: io::Error,
    },
    #[error("could not collect {subject} of the exec {exec}")]
    Collect {
        exec: ExecId,
        subject: String,
        #[source]
        source: io::Error,
    },
    #[error("could not write {name} of the exec {exec}")]
    Finish {
        exec: ExecId,
        name: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("could not list the artifacts of the exec {exec}")]
    ListArtifacts {
        exec: ExecId,
        #[source]
        source: io::Error,
    },
    #[error("the exec {exec} has no artifact {path}")]
    ArtifactMissing { exec: ExecId, path: RelativePath },
    #[error("{path} of the exec {exec} is not a regular file")]
    ArtifactIrregular { exec: ExecId, path: RelativePath },
    #[error("could not open {path} of the exec {exec}")]
    OpenArtifact {
        exec: ExecId,
        path: RelativePath,
        #[source]
        source: io::Error,
    },
    #[error("could not read {stream} of the exec {exec}")]
    ReadOutput {
        exec: ExecId,
        stream: Stream,
        #[source]
        source: io::Error,
    },
    #[error("could not read an uploaded archive")]
    ReadArchive(#[source] io::Error),
    #[error("could not unpack {path}")]
    Unpack {
        path: RelativePath,
        #[source]
        source: io::Error,
    },
    #[error("could not store an upload")]
    Stage(#[source] io::Error),
    #[error("could not put the skill {skill} into its place")]
    InstallSkill {
        skill: SkillName,
        #[source]
        source: io::Error,
    },
    #[error("could not read the skill {skill}")]
    ReadSkill {
        skill: SkillName,
        #[source]
        source: io::Error,
    },
    #[error("could not list the skills")]
    ListSkills(#[source] io::Error),
    #[error("could not {doing} baselines")]
    Baseline {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(
        "could not read which baselines the agent {agent} has; restore `baselines/.current/{agent}.json` and what it names \
         from a backup, or delete that file, start the server again, and upload the agent's baselines once more"
    )]
    BaselinesUnreadable {
        agent: AgentId,
        #[source]
        source: io::Error,
    },
    #[error("could not measure a workspace")]
    Measure(#[source] io::Error),
    #[error("could not remove {subject}")]
    Remove {
        subject: String,
        #[source]
        source: io::Error,
    },
}

impl From<ArchiveRefusal> for Error {
    fn from(refusal: ArchiveRefusal) -> Self {
        Error::Refused(refusal.into())
    }
}

/// Text from outside made fit for a message: control characters could steer the reader's terminal, and a megabyte of
/// path would bury the sentence.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN: usize = 120;
    let mut quoted = String::from('"');
    quoted.extend(text.chars().take(SHOWN).flat_map(char::escape_debug));
    if text.chars().nth(SHOWN).is_some() {
        quoted.push('…');
    }
    quoted.push('"');
    quoted
}
