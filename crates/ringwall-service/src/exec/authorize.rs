//! Decides whether an exec may run, and as what. The same decision is made at up to four moments:
//!
//! | moment | directories | settings | a denial is |
//! | --- | --- | --- | --- |
//! | submit | expected paths | current | recorded as `POLICY_DENIED` |
//! | before an answer counts | digest of the action, compared with the question's | current | the question is void and asked again |
//! | after an answer | expected paths, path list read again | read again | `POLICY_DENIED` |
//! | start | opened directories, path list read again | those of the last decision | an internal error |
//!
//! Directories are opened only after the intent is on record, so the first decisions use the paths
//! that they will have. The digest of the second moment is in `paths/question` and
//! `session/code/confirm`.

use std::path::{Path, PathBuf};

use ringwall_ids::{AgentId, SessionId, UserId};
use ringwall_policy::{
    AgentMounts, PathAccess, PathControl, ProjectMounts, Request, Root, SessionMounts, Verdict, Workspace, decide,
    decide_code,
};
use ringwall_workspace::{Owner, Section};

use crate::error::Error;
use crate::exec::files::{OpenTarget, PreparedFiles};
use crate::exec::spec::{ExecSpec, Target};
use crate::service::Service;

pub(crate) enum Directories<'a> {
    Expected,
    Opened(&'a PreparedFiles),
}

/// The host paths of the directories in a [`Target`].
enum TargetPaths {
    Project { inputs: PathBuf, work: PathBuf, artifacts: PathBuf },
    Agent { files: PathBuf, skills: PathBuf },
    Session { work: PathBuf },
}

impl Service {
    pub(crate) async fn authorize(
        &self,
        spec: &ExecSpec,
        owner: Owner,
        directories: Directories<'_>,
    ) -> Result<Verdict, Error> {
        let argv = match &spec.argv {
            Ok(argv) => argv.clone(),
            Err(denial) => return Ok(Verdict::Deny(denial.clone())),
        };
        let paths = match directories {
            Directories::Expected => Some(spec.expected_paths(&self.workspace_path(&spec.user_id, &spec.agent_id))),
            Directories::Opened(files) => files.paths(),
        };
        let owner = ringwall_policy::Owner::new(owner.uid, owner.gid)?;
        let workspace = match (&spec.target, paths) {
            (Target::Project { access, .. }, Some(TargetPaths::Project { inputs, work, artifacts })) => {
                Workspace::Project(Box::new(ProjectMounts { inputs, work, artifacts, access: *access, owner }))
            }
            (Target::Agent { .. }, Some(TargetPaths::Agent { files, skills })) => {
                Workspace::Agent(Box::new(AgentMounts { files, skills, owner }))
            }
            (Target::Session { named, approved, .. }, Some(TargetPaths::Session { work })) => {
                let control = self.reach(&spec.user_id, named, approved).await?;
                Workspace::Session(Box::new(SessionMounts { work, owner, control, hidden: self.hidden_now() }))
            }
            // Code gets the session's files and no host paths.
            (Target::Code(_), Some(TargetPaths::Session { work })) => {
                let control = PathControl::On(PathAccess::default());
                Workspace::Session(Box::new(SessionMounts { work, owner, control, hidden: Vec::new() }))
            }
            (Target::Project { .. } | Target::Agent { .. } | Target::Session { .. } | Target::Code(_), _) => {
                return Err(Error::Runtime { message: "the opened directories are not those of the exec".to_owned() });
            }
        };
        let request = Request {
            argv,
            env: spec.env.clone(),
            cwd: Some(spec.cwd.clone()),
            root: spec.image.clone().map_or(Root::Host, Root::Docker),
            workspace,
            read_only: Vec::new(),
        };
        Ok(match &spec.target {
            Target::Code(code) => decide_code(&request, &spec.layers, &code.judged),
            Target::Project { .. } | Target::Agent { .. } | Target::Session { .. } => decide(&request, &spec.layers),
        })
    }

    pub(crate) fn workspace_path(&self, user: &UserId, agent: &AgentId) -> PathBuf {
        self.inner.workspaces_path.join(user.as_str()).join(agent.as_str())
    }
}

impl ExecSpec {
    fn expected_paths(&self, workspace: &Path) -> TargetPaths {
        match &self.target {
            Target::Project { .. } => {
                let project = workspace.join("projects").join(self.project_id.as_str());
                let [inputs, work, artifacts] = ["inputs", "work", "artifacts"].map(|name| project.join(name));
                TargetPaths::Project { inputs, work, artifacts }
            }
            Target::Agent { .. } => {
                let [files, skills] = ["files", "skills"].map(|name| workspace.join(name));
                TargetPaths::Agent { files, skills }
            }
            Target::Session { session, .. } => TargetPaths::Session { work: session_work(workspace, session) },
            Target::Code(code) => TargetPaths::Session { work: session_work(workspace, code.session()) },
        }
    }
}

/// The directory of a session's files.
pub(crate) fn session_work(workspace: &Path, session: &SessionId) -> PathBuf {
    workspace.join("sessions").join(session.as_str()).join("work")
}

impl PreparedFiles {
    /// `None` for a project exec without an artifacts directory, which is a bug.
    fn paths(&self) -> Option<TargetPaths> {
        let Self { project, target, files, .. } = self;
        Some(match target {
            OpenTarget::Project => TargetPaths::Project {
                inputs: project.inputs().path().to_owned(),
                work: project.work().path().to_owned(),
                artifacts: files.artifacts()?.path().to_owned(),
            },
            OpenTarget::Agent(tree) => TargetPaths::Agent {
                files: tree.section(Section::Files).path().to_owned(),
                skills: tree.section(Section::Skills).path().to_owned(),
            },
            OpenTarget::Session(session) => TargetPaths::Session { work: session.work().path().to_owned() },
        })
    }
}
