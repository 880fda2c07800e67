//! A piece of code as it is asked for, and what about that can be wrong without asking anybody.

use ringwall_executor::pool::OnBusy;
use ringwall_policy::Field;
use ringwall_risk::MAX_CONTENT;
use ringwall_workspace::{AgentPath, SessionId};

use super::backend::ALL_IN_ONE;
use super::language::Language;
use super::order::Input;
use crate::agent_files::ProblemKind;
use crate::error::Error;
use crate::session::SessionAddress;

const MIN_SECONDS: u64 = 1;
const MAX_SECONDS: u64 = 300;
const DEFAULT_SECONDS: u64 = 30;
/// Of what nobody waits for: as long as a limit means anything.
const MAX_PROCESS_SECONDS: u64 = Field::TimeoutMs.max_value() / 1000;

#[derive(Debug, Clone)]
pub struct CodeRequest {
    pub session_id: String,
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    pub code: String,
    pub language: Language,
    pub timeout_s: Option<u64>,
    pub backend: Option<String>,
    pub max_memory_mb: Option<u64>,
    /// Of each stream.
    pub max_output_bytes: Option<u64>,
    /// Paths relative to the session's files, and their content.
    pub files: Vec<(String, Vec<u8>)>,
    /// The interpreter that stays between runs; none where it is not said.
    pub context_id: Option<String>,
    /// What becomes of it where somebody else uses the session's box.
    pub on_busy: OnBusy,
}

impl CodeRequest {
    /// A line for bash in the box that stays with its session.
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

    pub(super) fn check(&self, input: &Input) -> Result<(), Error> {
        if let Some(id) = &self.context_id {
            let _: SessionId = id
                .parse()
                .map_err(|error: ringwall_workspace::Error| Error::invalid(format!("context_id: {error}")))?;
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

    /// A context is in a box that stays anyway, and that is made by whoever is demanded.
    pub(super) fn asked_backend(&self) -> Option<&str> {
        let asked = self.backend.as_deref();
        asked.filter(|backend| self.context_id.is_none() || *backend != ALL_IN_ONE)
    }

    pub(super) fn timeout_ms(&self) -> Option<u64> {
        self.timeout_s.map(|seconds| seconds * 1000)
    }

    pub(super) const fn usual_timeout_ms() -> u64 {
        DEFAULT_SECONDS * 1000
    }

    /// Where its files go. All are checked before one is written.
    pub(super) fn files<'a>(&'a self) -> Result<Vec<(AgentPath, &'a [u8])>, Error> {
        let read = |(path, content): &'a (String, Vec<u8>)| Ok((AgentPath::in_session(path)?, content.as_slice()));
        self.files.iter().map(read).collect()
    }
}
