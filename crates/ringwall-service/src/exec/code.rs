//! Code execs: the request, its command and limits, and the assessment of its risk.
//!
//! The box has the session's files and no host paths. Code is passed as a command argument, so that
//! the record shows it. Code that is too long for an argument is sent through stdin, which only the
//! server writes, and the record has its SHA-256. A file would lie where another box of the session
//! could change it after the assessment.

use std::sync::{Arc, OnceLock};

use ringwall_executor::aio_service::{ServiceFile, ServiceWork};
use ringwall_executor::pool::OnBusy;
use ringwall_ids::{ExecId, IdError, SessionId};
use ringwall_policy::{Code, Field, Isolation, Layer, LayerName, Layers, UNLIMITED, merge, profile};
use ringwall_record::{Confirmation, Digest, SessionKey, Status};
use ringwall_risk::{Assessment, MAX_CONTENT};
use ringwall_workspace::{AgentPath, Session, Usage};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::boxes::{Language, TerminalHandle};
use crate::error::{Error, ProblemKind};
use crate::exec::line::{FROM_STDIN, MAX_WORD_LEN};
use crate::exec::registry::{ExecState, RunningExec};
use crate::session_ref::SessionAddress;
use crate::settings::{Rules, lasting_layers, layers};

/// Backend name for the session box, or for the workspace's external AIO service.
pub(crate) const ALL_IN_ONE: &str = "aio";

const MIN_SECONDS: u64 = 1;
const MAX_SECONDS: u64 = 300;
const DEFAULT_SECONDS: u64 = 30;
/// For processes and terminals: the largest timeout that the policy accepts.
const MAX_PROCESS_SECONDS: u64 = Field::TimeoutMs.max_value() / 1000;

/// These read the code from stdin to its end, so the code itself sees an empty stdin.
const LONG_PYTHON: &str = "exec(compile(__import__('sys').stdin.buffer.read(), '<string>', 'exec'))";
const DEFAULT_MEMORY_MB: u64 = 512;
const DEFAULT_OUTPUT: u64 = 10 << 20;
/// Number of sent files that are recorded with name and digest.
const NOTED_FILES: usize = 100;

#[derive(Debug, Clone, Default)]
pub struct CodeRequest {
    pub session_id: String,
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    pub code: String,
    pub language: Language,
    pub timeout_s: Option<u64>,
    pub backend: Option<String>,
    pub max_memory_mb: Option<u64>,
    /// Applies to each stream.
    pub max_output_bytes: Option<u64>,
    /// Path, relative to the session's files, and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// The context to run in: an interpreter that keeps its state between runs.
    pub context_id: Option<String>,
    /// Waits or fails while another caller uses the session box.
    pub on_busy: OnBusy,
}

impl CodeRequest {
    /// A bash command in the session box.
    pub fn in_session_box(
        address: SessionAddress,
        command: String,
        timeout_s: Option<u64>,
        max_output_bytes: Option<u64>,
    ) -> Self {
        Self {
            session_id: address.session_id,
            user_id: address.user_id,
            agent_id: address.agent_id,
            code: command,
            language: Language::Shell,
            timeout_s,
            backend: Some(ALL_IN_ONE.to_owned()),
            max_memory_mb: None,
            max_output_bytes,
            files: Vec::new(),
            context_id: None,
            on_busy: OnBusy::Wait,
        }
    }

    pub(crate) fn check(&self, input: &Input) -> Result<(), Error> {
        if let Some(id) = &self.context_id {
            let _: SessionId = id.parse().map_err(|error: IdError| Error::invalid(format!("context_id: {error}")))?;
            if self.language == Language::Shell {
                return Err(Error::invalid("context_id: there are contexts of python and javascript"));
            }
        }
        let is_in_session_box = self.context_id.is_some() || self.backend.as_deref() == Some(ALL_IN_ONE);
        if is_in_session_box && self.max_memory_mb.is_some() {
            return Err(Error::invalid(
                "max_memory_mb: contexts and the backend aio have the memory of their session's box; leave it out",
            ));
        }
        if self.code.contains('\0') {
            return Err(Error::invalid("code: a NUL byte would cut it short"));
        }
        if self.code.len() > MAX_CONTENT {
            let message = format!("code is {} bytes long, but at most {MAX_CONTENT} are run", self.code.len());
            return Err(Error::agent(ProblemKind::TooLarge, message));
        }
        let longest = if input.ends() { MAX_SECONDS } else { MAX_PROCESS_SECONDS };
        match self.timeout_s {
            Some(asked) if !(MIN_SECONDS..=longest).contains(&asked) => {
                Err(Error::invalid(format!("timeout must be {MIN_SECONDS} to {longest} seconds")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The backend to choose. `None` for a context with backend `aio`: contexts are in a session
    /// box anyway.
    pub(crate) fn asked_backend(&self) -> Option<&str> {
        let asked = self.backend.as_deref();
        asked.filter(|backend| self.context_id.is_none() || *backend != ALL_IN_ONE)
    }

    pub(crate) fn timeout_ms(&self) -> Option<u64> {
        self.timeout_s.map(|seconds| seconds * 1000)
    }

    pub(crate) const fn default_timeout_ms() -> u64 {
        DEFAULT_SECONDS * 1000
    }

    /// The sent files by path. Checks all paths, so that none is written if one is invalid.
    pub(crate) fn files<'a>(&'a self) -> Result<Vec<(AgentPath, &'a [u8])>, Error> {
        let read = |(path, content): &'a (String, Vec<u8>)| Ok((AgentPath::in_session(path)?, content.as_slice()));
        self.files.iter().map(read).collect()
    }
}

/// The part of an [`ExecSpec`](super::spec::ExecSpec) that only code has.
#[derive(Debug)]
pub(crate) struct CodeSpec {
    pub(crate) session: SessionKey,
    pub(crate) request: CodeRequest,
    pub(crate) judged: Code,
    pub(crate) rules: Rules,
    pub(crate) replaces: Option<Value>,
    /// Set if a person edits the code in an approval.
    pub(crate) replacement: Replacement,
    /// Isolation of the session box, if the code runs in one.
    pub(crate) isolation: Isolation,
    pub(crate) stdin: Input,
}

/// The exec that runs the code as a person edited it. Set before the first exec ends, so that a
/// caller that sees its end finds the next exec.
pub(crate) type Replacement = Arc<OnceLock<CodeBegun>>;

/// An exec whose intent is recorded: it runs, waits for a slot or an approval, or was denied. Pass
/// it to `finish_code` for the outcome; a clone can be used to ask again later.
#[derive(Debug, Clone)]
pub struct CodeBegun {
    pub exec_id: ExecId,
    pub status: Status,
    pub(crate) assessment: Arc<Assessment>,
    pub(crate) replacement: Replacement,
    /// The state of the exec, readable also after its end. `None` if nothing runs.
    pub(crate) state: Option<watch::Receiver<ExecState>>,
    /// Keeps the exec's output files open until the caller has read them.
    pub(crate) running: Option<Arc<RunningExec>>,
}

impl CodeBegun {
    /// The current exec, which differs from `exec_id` if a person has edited the code.
    pub fn latest(&self) -> ExecId {
        self.replacement.get().map_or_else(|| self.exec_id.clone(), Self::latest)
    }

    /// Without the handle of the running exec, for a client that may ask for the outcome much
    /// later: no output stays open for it.
    pub fn set_aside(self) -> Self {
        Self { running: None, ..self }
    }
}

/// The stdin of a command.
#[derive(Debug)]
pub(crate) enum Input {
    /// The code if it is long, then end of file.
    Ends,
    /// A client writes to it while it runs.
    Open,
    /// Keys typed at its terminal.
    Terminal(TerminalHandle),
}

impl Input {
    /// True for a command whose stdin ends by itself; a caller waits for its end. Processes and
    /// terminals run until they exit or are stopped, beside other commands of the box.
    pub(crate) fn ends(&self) -> bool {
        match self {
            Input::Ends => true,
            Input::Open | Input::Terminal(_) => false,
        }
    }
}

impl CodeRequest {
    fn is_long(&self) -> bool {
        self.code.len() > MAX_WORD_LEN
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let words: &[&str] = match (self.language, self.is_long()) {
            (Language::Python, false) => &["python3", "-c"],
            (Language::Python, true) => &["python3", "-c", LONG_PYTHON],
            (Language::Javascript, false) => &["node", "-e"],
            (Language::Javascript, true) => &["node", "-"],
            (Language::Shell, false) => &["bash", "-c"],
            (Language::Shell, true) => &["bash", "-c", FROM_STDIN],
        };
        let code = (!self.is_long()).then_some(self.code.as_str());
        words.iter().copied().chain(code).map(str::to_owned).collect()
    }

    /// The policy layers with the requested limits. Unset limits use the default, capped by policy.
    /// A command that is not awaited has no default timeout.
    pub(crate) fn layers(&self, operator: Layer, is_waited_for: bool) -> Result<Layers, Error> {
        let (mut layers, default_timeout) = match is_waited_for {
            true => (layers(profile::FILES, operator, Vec::new()), Self::default_timeout_ms()),
            false => (lasting_layers(operator), UNLIMITED),
        };
        let all = merge(&layers).map_err(|denial| Error::invalid(denial.message))?.limits;
        let mut layer = Layer::new(LayerName::Request);
        for (field, asked, default) in [
            (Field::TimeoutMs, self.timeout_ms(), default_timeout),
            (Field::MemoryMb, self.max_memory_mb, DEFAULT_MEMORY_MB),
            (Field::StdoutBytes, self.max_output_bytes, DEFAULT_OUTPUT),
            (Field::StderrBytes, self.max_output_bytes, DEFAULT_OUTPUT),
        ] {
            let value = match asked {
                Some(asked) => field.check(asked)?,
                None => default.min(all.get(field)),
            };
            layer.limits.insert(field, value);
        }
        layers.narrowing.push(layer);
        Ok(layers)
    }
}

impl CodeSpec {
    pub(crate) fn session(&self) -> &SessionId {
        &self.session.session_id
    }

    /// True if a person decides on risky code instead of the server.
    pub(crate) fn asks_person(&self) -> bool {
        match self.rules.confirmation {
            Confirmation::Websocket | Confirmation::Callback => true,
            Confirmation::AutoApprove | Confirmation::AutoReject => false,
        }
    }

    pub(crate) fn context(&self) -> Option<&str> {
        self.request.context_id.as_deref()
    }

    pub(crate) fn language(&self) -> Language {
        self.request.language
    }

    pub(crate) fn text(&self) -> &str {
        &self.request.code
    }

    pub(crate) fn on_busy(&self) -> OnBusy {
        self.request.on_busy
    }

    /// The bytes for stdin: the code if it is long. A context receives its code in another way.
    pub(crate) fn input(&self) -> &[u8] {
        if self.request.is_long() && self.request.context_id.is_none() { self.request.code.as_bytes() } else { &[] }
    }

    pub(crate) fn has_files(&self) -> bool {
        !self.request.files.is_empty()
    }

    pub(crate) fn size(&self) -> Usage {
        let sizes = self.request.files.iter().map(|(_, content)| Usage::of_file(content.len() as u64));
        sizes.fold(Usage::default(), Usage::plus)
    }

    /// Writes the sent files.
    pub(crate) fn write_files(&self, session: &Session) -> Result<(), Error> {
        for (path, content) in self.request.files()? {
            session.tree().write(&path, content)?;
        }
        Ok(())
    }

    /// The request to an AIO service. Its paths were checked when the request was read.
    pub(crate) fn service_work(&self) -> ServiceWork {
        let files = self.request.files().unwrap_or_default().into_iter().map(|(path, content)| {
            let path = path.inner().map(|inner| inner.as_str().to_owned()).unwrap_or_default();
            ServiceFile { path, content: content.to_vec() }
        });
        ServiceWork {
            session: self.session.session_id.to_string(),
            files: files.collect(),
            input: self.input().to_vec(),
        }
    }

    /// The entry about the code in the policy snapshot.
    pub(crate) fn note(&self) -> Value {
        let assessment = &self.judged.assessment;
        let mut note = json!({
            "language": assessment.content,
            "bytes": self.request.code.len(),
            "sha256": Digest::of(self.request.code.as_bytes()).to_string(),
            "level": assessment.level,
            "patterns": assessment.findings.iter().map(|finding| finding.rule.id).collect::<std::collections::BTreeSet<_>>(),
            "security_mode": self.judged.mode,
            "confirmation": self.rules.confirmation,
        });
        if let Some(context) = &self.request.context_id {
            note["context_id"] = json!(context);
        }
        if self.has_files() {
            let files = self.request.files.iter().take(NOTED_FILES);
            let files = files.map(|(path, content)| json!({ "path": path, "sha256": Digest::of(content).to_string() }));
            note["files"] = files.collect();
        }
        if let Some(replaces) = &self.replaces {
            note["replaces"] = replaces.clone();
        }
        note
    }
}
