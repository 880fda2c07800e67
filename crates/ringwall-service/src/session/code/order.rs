//! Code as an order: its words, its limits, its box, and what is known of its risk.
//!
//! The box has the session's files and nothing of the host. Code is in the command's words, so that the record shows it; what
//! is too long for that comes in through the command's standard input, where nobody but the server writes, and the record has
//! its digest. A file would lie where another box of the session could change it after it was judged.

use std::path::PathBuf;
use std::sync::Arc;

use ringwall_executor::aio_service::{ServiceFile, ServiceWork};
use ringwall_executor::pool::OnBusy;
use ringwall_policy::{Code, Consent, Field, Isolation, Layer, LayerName, Layers, Secret, UNLIMITED, merge, profile};
use ringwall_record::{Author, Confirmation, Digest};
use ringwall_workspace::{ProjectId, Session, SessionId, Usage};
use serde_json::{Value, json};

use super::language::Language;
use super::request::CodeRequest;
use super::trail::Trail;
use crate::agent_files::execute::{PROJECT, WORKSPACE};
use crate::error::Error;
use crate::exec::backend::Backend;
use crate::exec::order::{Ground, Order, lasting_layers, layers};
use crate::service::Service;
use crate::session::residents::Seat;
use crate::session::{Place, Rules};

/// A word has at most 128 KiB for the kernel.
const MAX_WORD_LEN: usize = 120 * 1024;
/// They read the code from their input, and then have none.
/// A function of the shell's that stands in where a root that is not ours has no `python` of its own.
const PYTHON: (&str, &str) = (
    "BASH_FUNC_python%%",
    "() { if type -P python >/dev/null; then command python \"$@\"; else command python3 \"$@\"; fi; }",
);
const LONG_PYTHON: &str = "exec(compile(__import__('sys').stdin.buffer.read(), '<string>', 'exec'))";
const LONG_SHELL: &str = "eval \"$(cat)\"";
const DEFAULT_MEMORY_MB: u64 = 512;
const DEFAULT_OUTPUT: u64 = 10 << 20;
/// So many of the files that come along are on record by their names and digests.
const NOTED_FILES: usize = 100;

/// What an exec of code has beside what every exec has.
#[derive(Debug)]
pub(crate) struct CodeOrder {
    pub(crate) place: Place,
    pub(super) request: CodeRequest,
    pub(crate) judged: Code,
    pub(super) rules: Rules,
    pub(super) replaces: Option<Value>,
    pub(crate) trail: Arc<Trail>,
    /// How strong the session's box is, where it runs in that.
    pub(crate) home: Isolation,
    pub(crate) stdin: Input,
}

/// What a command reads.
#[derive(Debug)]
pub(crate) enum Input {
    /// Its code where that is long, and then nothing.
    Ends,
    /// What somebody writes to it while it runs.
    Open,
    /// What is typed at its terminal.
    Terminal(Seat),
}

impl Input {
    /// Whether somebody waits for the command, who has nothing more to say to it. Of the others nobody does: they last until
    /// they end or are ended, beside whatever else is in their box.
    pub(crate) fn ends(&self) -> bool {
        match self {
            Input::Ends => true,
            Input::Open | Input::Terminal(_) => false,
        }
    }
}

impl Service {
    /// Reads and judges a request from the start, whoever wrote its code.
    pub(super) async fn read_code(
        &self,
        author: Author,
        place: Place,
        request: CodeRequest,
        trail: Arc<Trail>,
        stdin: Input,
    ) -> Result<Order, Error> {
        request.check(&stdin)?;
        request.files()?;
        let user = &place.name.user_id;
        let assessment = Arc::new(self.assess_for(user, request.language.into(), request.code.clone()).await?);
        trail.assessed(assessment.clone());
        let rules = self.session_rules(&place).await?;
        let choice = self.choose_box(&place, request.asked_backend(), rules.mode, assessment.level).await?;
        let layers = request.layers(self.settings_now().operator.clone(), stdin.ends())?;
        let words = request.words();
        let mut order = Order {
            author,
            idempotency: None,
            user_id: place.name.user_id.clone(),
            agent_id: place.name.agent_id.clone(),
            project_id: PROJECT.parse::<ProjectId>()?,
            task_id: None,
            conversation_id: Some(place.id.to_string()),
            skill_id: None,
            backend: choice.backend,
            image: choice.image,
            argv: choice.denial.map_or_else(|| Ok(words.iter().map(Into::into).collect()), Err),
            words,
            cwd: PathBuf::from(WORKSPACE),
            env: Default::default(),
            layers,
            ground: Ground::Agent { needs: crate::exec::order::Needs::Nothing },
        };
        let has_link = order.backend == Backend::Native && order.image.is_none();
        if request.language == Language::Shell && request.code.contains("python") && !has_link {
            order.env.insert(PYTHON.0.to_owned(), Secret::new(PYTHON.1));
        }
        let judged = Code { assessment, mode: rules.mode, consent: Consent::NotAsked };
        order.ground = Ground::Code(Box::new(CodeOrder {
            place,
            request,
            judged,
            rules,
            replaces: None,
            trail,
            home: choice.home,
            stdin,
        }));
        Ok(order)
    }
}

impl CodeRequest {
    fn is_long(&self) -> bool {
        self.code.len() > MAX_WORD_LEN
    }

    pub(super) fn words(&self) -> Vec<String> {
        let words: &[&str] = match (self.language, self.is_long()) {
            (Language::Python, false) => &["python3", "-c"],
            (Language::Python, true) => &["python3", "-c", LONG_PYTHON],
            (Language::Javascript, false) => &["node", "-e"],
            (Language::Javascript, true) => &["node", "-"],
            (Language::Shell, false) => &["bash", "-c"],
            (Language::Shell, true) => &["bash", "-c", LONG_SHELL],
        };
        let code = (!self.is_long()).then_some(self.code.as_str());
        words.iter().copied().chain(code).map(str::to_owned).collect()
    }

    /// What is not asked for is as usual, or as little as everybody gets. What nobody waits for has no time limit but one that
    /// somebody sets.
    pub(super) fn layers(&self, operator: Layer, is_waited_for: bool) -> Result<Layers, Error> {
        let (mut layers, usual_timeout) = match is_waited_for {
            true => (layers(profile::FILES, operator, Vec::new()), Self::usual_timeout_ms()),
            false => (lasting_layers(operator), UNLIMITED),
        };
        let all = merge(&layers).map_err(|denial| Error::invalid(denial.message))?.limits;
        let mut layer = Layer::new(LayerName::Request);
        for (field, asked, usual) in [
            (Field::TimeoutMs, self.timeout_ms(), usual_timeout),
            (Field::MemoryMb, self.max_memory_mb, DEFAULT_MEMORY_MB),
            (Field::StdoutBytes, self.max_output_bytes, DEFAULT_OUTPUT),
            (Field::StderrBytes, self.max_output_bytes, DEFAULT_OUTPUT),
        ] {
            let value = match asked {
                Some(asked) => field.check(asked)?,
                None => usual.min(all.get(field)),
            };
            layer.limits.insert(field, value);
        }
        layers.narrowing.push(layer);
        Ok(layers)
    }
}

impl CodeOrder {
    pub(crate) fn session(&self) -> &SessionId {
        &self.place.id
    }

    /// Whether it is a person who answers where it deserves that.
    pub(crate) fn asks_person(&self) -> bool {
        match self.rules.confirmation {
            Confirmation::Websocket | Confirmation::Callback => true,
            Confirmation::AutoApprove | Confirmation::AutoReject => false,
        }
    }

    /// The context that it runs in, if it runs in one.
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

    /// What is written to the command's standard input. A context is told its code by another way.
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

    /// Writes the files that came along.
    pub(crate) fn write_files(&self, session: &Session) -> Result<(), Error> {
        for (path, content) in self.request.files()? {
            session.tree().write(&path, content)?;
        }
        Ok(())
    }

    /// What an AIO service is given to work on. Its files were read before, when the request was.
    pub(crate) fn service_work(&self) -> ServiceWork {
        let files = self.request.files().unwrap_or_default().into_iter().map(|(path, content)| {
            let path = path.inner().map(|inner| inner.as_str().to_owned()).unwrap_or_default();
            ServiceFile { path, content: content.to_vec() }
        });
        ServiceWork { session: self.place.id.to_string(), files: files.collect(), input: self.input().to_vec() }
    }

    /// For the record, beside the policy in force.
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
