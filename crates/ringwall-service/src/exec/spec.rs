//! Reads a request into an [`ExecSpec`]. Nothing is written, opened or started here.
//!
//! A malformed request is an error and leaves no record. A well-formed command that is not allowed
//! is kept as a [`Denial`], because denials are recorded.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use ringwall_executor::backend;
use ringwall_ids::{AgentId, ProjectId, SessionId, UserId};
use ringwall_policy::{
    Denial, DockerImage, EffectivePolicy, ExecKind, Grant, HostPath, Isolation, Layer, LayerName, Layers, NetMode,
    PathControl, ProjectAccess, Rights, Secret, Workspace, check_cwd, check_kind, profile,
};
use ringwall_record::{Author, SessionKey};
use ringwall_workspace::{Input, RelativePath};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::approvals::Covering;
use crate::auth::principal::Principal;
use crate::error::Error;
use crate::exec::code::CodeSpec;
use crate::exec::host_paths::note;
use crate::exec::line;
use crate::exec::registry::Lifetime;
use crate::settings::{Settings, layers};
use crate::skills::{RuntimeKind, Skill};

/// An exec request as the API received it, unchecked.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    /// Default: `conversation_id`.
    pub project_id: Option<String>,
    pub skill_id: Option<String>,
    pub kind: String,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, Secret>,
    /// Path, relative to `inputs/`, and content.
    pub inputs: Vec<(String, Vec<u8>)>,
    pub overrides: Option<serde_json::Value>,
    pub task_id: Option<String>,
    pub conversation_id: Option<String>,
    pub backend: Option<String>,
    pub idempotency: Option<Idempotency>,
}

/// A key that makes a request run once, and the digest that identifies a repetition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    /// SHA-256 of the body.
    pub body_digest: [u8; 32],
}

#[derive(Debug)]
pub(crate) struct ExecSpec {
    pub(crate) author: Author,
    pub(crate) idempotency: Option<Idempotency>,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    pub(crate) project_id: ProjectId,
    pub(crate) task_id: Option<String>,
    pub(crate) conversation_id: Option<String>,
    pub(crate) skill_id: Option<String>,
    pub(crate) backend: Backend,
    pub(crate) image: Option<DockerImage>,
    /// The command as requested, for the record.
    pub(crate) words: Vec<String>,
    pub(crate) argv: Result<Vec<OsString>, Denial>,
    pub(crate) cwd: PathBuf,
    pub(crate) env: BTreeMap<String, Secret>,
    pub(crate) layers: Layers,
    pub(crate) target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Backend {
    Native,
    Docker,
    Gvisor,
    /// The session box, created by any backend. Not available to execs without a session.
    Aio,
    /// An external AIO service. It creates no boxes on demand, so a request cannot name it.
    AioService,
}

impl Backend {
    /// The backends that a request can name.
    pub(crate) const ALL: [Self; 3] = [Self::Native, Self::Docker, Self::Gvisor];

    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Native => backend::NATIVE,
            Self::Docker => backend::DOCKER,
            Self::Gvisor => backend::GVISOR,
            Self::Aio | Self::AioService => backend::AIO,
        }
    }
}

/// How gVisor runs an exec that needs no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GvisorHome {
    /// With the `runsc` that this server found.
    Host,
    Docker,
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|backend| backend.key() == text);
        found.ok_or_else(|| Error::invalid("backend must be native, docker or gvisor"))
    }
}

/// The directories that an exec works on.
#[derive(Debug)]
pub(crate) enum Target {
    /// The directories of its project.
    Project { inputs: Vec<Input>, access: ProjectAccess },
    /// The agent's own files and skills, mounted directly. The project stores only the output.
    Agent { needs: Needs },
    /// The files of a session and the host paths that its user may use. The project stores only the
    /// output.
    Session { session: SessionId, named: Vec<HostPath>, approved: Vec<Approved>, covering: Box<Covering>, needs: Needs },
    /// Code: the files of a session and no host paths. The project stores only the output.
    Code(Box<CodeSpec>),
}

/// A host path that a person allowed for this exec only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Approved {
    pub(crate) path: HostPath,
    pub(crate) rights: Rights,
}

/// The project that stores the output of execs on an agent's or a session's files.
pub(crate) const PROJECT: &str = "workspace";

/// The resource without which a command fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Network,
}

impl Needs {
    pub(crate) fn of(wants_network: bool) -> Self {
        if wants_network { Needs::Network } else { Needs::Nothing }
    }
}

impl ExecSpec {
    pub(crate) fn read(
        by: &Principal,
        request: ExecRequest,
        skill: Option<&Arc<Skill>>,
        settings: &Settings,
        gvisor: GvisorHome,
    ) -> Result<Self, Error> {
        let (user_id, agent_id) = by.workspace(request.user_id.as_deref(), request.agent_id.as_deref())?;
        let project_id = project(request.project_id.as_deref(), request.conversation_id.as_deref())?;
        let inputs = request.inputs.into_iter().map(|(path, content)| {
            let path = path.parse::<RelativePath>()?;
            Ok(Input { path, content })
        });
        let inputs = inputs.collect::<Result<Vec<_>, Error>>()?;
        let cwd = check_cwd(request.cwd.as_deref())?;
        let mut narrowing = Vec::new();
        narrowing.extend(skill.map(|skill| skill.layer()));
        if let Some(overrides) = request.overrides.filter(|overrides| !overrides.is_null()) {
            let layer =
                Layer::deserialize(overrides).map_err(|error| Error::invalid(format!("policy_overrides: {error}")))?;
            narrowing.push(layer.with_name(LayerName::Request));
        }
        let (backend, image) = choose_backend(request.backend.as_deref(), skill, settings, gvisor)?;
        let argv = request.kind.parse::<ExecKind>().and_then(|kind| check_kind(kind, &request.command, &request.args));
        let mut words = vec![request.command];
        words.extend(request.args);
        Ok(Self {
            author: by.author(),
            idempotency: request.idempotency,
            user_id,
            agent_id,
            project_id,
            task_id: request.task_id,
            conversation_id: request.conversation_id,
            skill_id: request.skill_id,
            backend,
            image,
            words,
            argv,
            cwd,
            env: request.env,
            layers: layers(profile::EXECS, settings.operator.clone(), narrowing),
            target: Target::Project {
                inputs,
                access: skill.map_or(ProjectAccess::WIDEST, |skill| skill.project_access()),
            },
        })
    }

    pub(crate) fn has_inputs(&self) -> bool {
        match &self.target {
            Target::Project { inputs, .. } => !inputs.is_empty(),
            Target::Code(code) => code.has_files(),
            Target::Agent { .. } | Target::Session { .. } => false,
        }
    }

    /// False if the box cannot have a network: on gVisor and on an AIO service.
    pub(crate) fn can_reach_hosts(&self) -> bool {
        match (self.backend, &self.target) {
            (Backend::Native | Backend::Docker, _) => true,
            (Backend::Aio, Target::Code(code)) => code.isolation != Isolation::Gvisor,
            (Backend::Gvisor | Backend::Aio | Backend::AioService, _) => false,
        }
    }

    pub(crate) fn session_key(&self) -> Option<SessionKey> {
        let session_id = self.session()?.clone();
        Some(SessionKey { user_id: self.user_id.clone(), agent_id: self.agent_id.clone(), session_id })
    }

    /// The session whose files the exec works on.
    pub(crate) fn session(&self) -> Option<&SessionId> {
        match &self.target {
            Target::Session { session, .. } => Some(session),
            Target::Code(code) => Some(code.session()),
            Target::Project { .. } | Target::Agent { .. } => None,
        }
    }

    pub(crate) fn lifetime(&self) -> Lifetime {
        match &self.target {
            Target::Code(code) if !code.stdin.ends() => Lifetime::UntilStopped,
            Target::Code(_) | Target::Project { .. } | Target::Agent { .. } | Target::Session { .. } => {
                Lifetime::UntilDone
            }
        }
    }

    /// True if the command needs a network that its policy does not give.
    pub(crate) fn lacks_network(&self, net: NetMode) -> bool {
        let needs = match &self.target {
            Target::Agent { needs } | Target::Session { needs, .. } => *needs,
            Target::Project { .. } | Target::Code(_) => Needs::Nothing,
        };
        needs == Needs::Network && net == NetMode::None
    }

    /// Long code is sent through stdin. All other commands get an empty stdin, so that a read ends
    /// at once.
    pub(crate) fn stdin(&self) -> &[u8] {
        match &self.target {
            Target::Code(code) => code.input(),
            Target::Agent { .. } | Target::Session { .. } => line::input(&self.words),
            Target::Project { .. } => &[],
        }
    }

    pub(crate) fn take_inputs(&mut self) -> Vec<Input> {
        match &mut self.target {
            Target::Project { inputs, .. } => std::mem::take(inputs),
            Target::Agent { .. } | Target::Session { .. } | Target::Code(_) => Vec::new(),
        }
    }

    /// The policy snapshot for the record: the limits with the layer that set each, the host paths
    /// in the box, and the assessment of code. Pass no `control` before a person has answered; the
    /// host paths are not known then.
    pub(crate) fn snapshot(&self, effective: &EffectivePolicy, control: Option<&PathControl>) -> Value {
        let mut snapshot = json!(effective);
        match (&self.target, control) {
            (Target::Session { .. }, Some(control)) => note(control, &mut snapshot),
            // A person is asked only if path control is on.
            (Target::Session { .. }, None) => snapshot["path_control"] = json!("on"),
            (Target::Code(code), _) => snapshot["code"] = code.note(),
            (Target::Project { .. } | Target::Agent { .. }, _) => {}
        }
        snapshot
    }
}

/// The host paths of a grant. `None` unless it is for a session.
pub(crate) fn control(grant: &Grant) -> Option<&PathControl> {
    match grant.workspace() {
        Workspace::Session(mounts) => Some(&mounts.control),
        Workspace::Private | Workspace::Directory(_) | Workspace::Project(_) | Workspace::Agent(_) => None,
    }
}

fn project(project: Option<&str>, conversation: Option<&str>) -> Result<ProjectId, Error> {
    let name = project
        .or(conversation)
        .ok_or_else(|| Error::invalid("project_id is missing, and there is no conversation_id to use instead"))?;
    Ok(name.parse()?)
}

/// Chooses the backend and the image. A skill that requires Docker cannot run natively.
fn choose_backend(
    asked: Option<&str>,
    skill: Option<&Arc<Skill>>,
    settings: &Settings,
    gvisor: GvisorHome,
) -> Result<(Backend, Option<DockerImage>), Error> {
    let asked = asked.map(str::parse::<Backend>).transpose()?;
    let needs_docker = skill.is_some_and(|skill| skill.runtime.kind == RuntimeKind::Docker);
    let backend = match (asked, needs_docker) {
        (Some(Backend::Native), true) => {
            return Err(Error::invalid("backend: this skill needs docker, so it cannot run natively"));
        }
        (Some(asked), _) => asked,
        (None, true) => Backend::Docker,
        (None, false) => Backend::Native,
    };
    let image = image_for(backend, skill, settings, gvisor)?;
    Ok((backend, image))
}

/// The image if Docker runs the exec, else `None`. gVisor runs an image as a runtime of Docker, and
/// anything else on the host's system if the server found `runsc`.
pub(crate) fn image_for(
    backend: Backend,
    skill: Option<&Arc<Skill>>,
    settings: &Settings,
    gvisor: GvisorHome,
) -> Result<Option<DockerImage>, Error> {
    let needs_docker = skill.is_some_and(|skill| skill.runtime.kind == RuntimeKind::Docker);
    let is_on_docker = match (backend, gvisor) {
        (Backend::Native | Backend::Aio | Backend::AioService, _) => false,
        (Backend::Docker, _) | (Backend::Gvisor, GvisorHome::Docker) => true,
        (Backend::Gvisor, GvisorHome::Host) => needs_docker,
    };
    let named = skill.and_then(|skill| skill.runtime.image.as_deref());
    Ok(is_on_docker.then(|| named.map_or_else(|| Ok(settings.image.clone()), str::parse)).transpose()?)
}
