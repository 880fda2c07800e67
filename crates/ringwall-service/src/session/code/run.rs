//! Runs code and reports its outcome. A denial, an expired approval and a timeout are results; code
//! that cannot be run at all is an error.

use std::sync::Arc;

use ringwall_ids::ExecId;
use ringwall_policy::DenialCode;
use ringwall_record::Status;
use ringwall_risk::{Assessment, Locale};

use crate::auth::principal::Principal;
use crate::boxes::Bundle;
use crate::error::Error;
use crate::exec::artifacts::{OutputPart, SHOWN};
use crate::exec::code::CodeRequest;
use crate::exec::code::Input;
use crate::exec::registry::RunningExec;
use crate::exec::run_notes::{Created, RunNotes};
use crate::exec::spec::ExecSpec;
use crate::exec::submit::{Answered, Submitted};
use crate::exec::view::ExecView;
use crate::service::Service;
use crate::session::code::words::error_of;
use crate::session_ref::{SessionAddress, SessionRef};

/// Reported if the exec has no exit code.
const NO_EXIT_CODE: i32 = -1;

/// An exec whose intent is recorded: it runs, waits for a slot or an approval, or was denied. Pass
/// it to `finish_code` for the outcome; a clone can be used to ask again later.
#[derive(Debug, Clone)]
pub struct CodeBegun {
    pub exec_id: ExecId,
    pub status: Status,
    run_notes: Arc<RunNotes>,
    /// Keeps the exec's output files open until the caller has read them.
    running: Option<Arc<RunningExec>>,
}

impl CodeBegun {
    /// The current exec, which differs from `exec_id` if a person has edited the code.
    pub fn latest(&self) -> ExecId {
        self.run_notes.latest().unwrap_or_else(|| self.exec_id.clone())
    }

    /// Without the handle of the running exec, for a client that may ask for the outcome much
    /// later: no output stays open for it.
    pub fn set_aside(self) -> Self {
        Self { running: None, ..self }
    }
}

/// The outcome of an exec.
#[derive(Debug)]
pub struct CodeRan {
    /// The exec that ended. It differs from the first one if a person has edited the code.
    pub exec_id: ExecId,
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
    /// -1 if there is no exit code.
    pub exit_code: i32,
    pub error: Option<String>,
    pub sandbox_type: String,
    pub execution_time_ms: u64,
    /// Paths relative to the session. `None` if there are too many files or they could not be
    /// listed.
    pub files_created: Option<Vec<String>>,
    pub assessment: Arc<Assessment>,
    /// The values that the code displayed. `None` if it did not run in a context.
    pub results: Option<Vec<Bundle>>,
}

impl Service {
    /// Starts an exec and returns when its intent is recorded.
    pub async fn begin_code(&self, by: &Principal, request: CodeRequest) -> Result<CodeBegun, Error> {
        self.begin_with_input(by, request, Input::Ends).await
    }

    pub(crate) async fn begin_with_input(
        &self,
        by: &Principal,
        request: CodeRequest,
        input: Input,
    ) -> Result<CodeBegun, Error> {
        let (spec, run_notes) = self.read_asked(by, request, input).await?;
        self.begin_spec(spec, run_notes, Answered::WhenIntended).await
    }

    /// Runs an exec and returns its outcome. The exec continues if the caller stops waiting.
    pub async fn run_code(&self, by: &Principal, request: CodeRequest, locale: Locale) -> Result<CodeRan, Error> {
        let (spec, run_notes) = self.read_asked(by, request, Input::Ends).await?;
        let begun = self.begin_spec(spec, run_notes, Answered::WhenOver).await?;
        self.finish_code(by, begun, locale).await
    }

    /// Turns a request into an order. Nothing is recorded yet.
    pub(crate) async fn read_asked(
        &self,
        by: &Principal,
        request: CodeRequest,
        input: Input,
    ) -> Result<(ExecSpec, Arc<RunNotes>), Error> {
        let address = SessionAddress {
            session_id: request.session_id.clone(),
            user_id: request.user_id.clone(),
            agent_id: request.agent_id.clone(),
        };
        let place = SessionRef::read(by, &address)?;
        let run_notes = Arc::<RunNotes>::default();
        let spec = self.read_code(by.author(), place, request, run_notes.clone(), input).await?;
        Ok((spec, run_notes))
    }

    pub(crate) async fn begin_spec(
        &self,
        spec: ExecSpec,
        run_notes: Arc<RunNotes>,
        answered: Answered,
    ) -> Result<CodeBegun, Error> {
        match self.admit_and_follow(spec, answered).await {
            Ok((Submitted { exec_id, status, .. }, running)) => Ok(CodeBegun { exec_id, status, run_notes, running }),
            Err(Error::Denied { denial, exec_id }) if denial.code == DenialCode::CodeDestructive => {
                Ok(CodeBegun { exec_id, status: Status::PolicyDenied, run_notes, running: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for the outcome, following the exec to its replacement if a person has edited the
    /// code. The exec continues if the caller stops waiting.
    pub async fn finish_code(&self, by: &Principal, begun: CodeBegun, locale: Locale) -> Result<CodeRan, Error> {
        let CodeBegun { mut exec_id, run_notes, running: mut known, .. } = begun;
        let (running, view) = loop {
            let running = known.take().or_else(|| self.find_running(by, &exec_id));
            let over = match &running {
                Some(running) => running.over().await,
                None => None,
            };
            let view = match over {
                Some(view) => view,
                None => Arc::new(self.exec(by, &exec_id).await?),
            };
            match run_notes.latest() {
                Some(next) if next != exec_id => exec_id = next,
                Some(_) | None => break (running, view),
            }
        };
        if let Some(failure) = view.failure() {
            return Err(failure);
        }
        if view.error_reason.as_ref().is_some_and(|reason| reason.code == "SERVER_STOPPED") {
            return Err(Error::Stopping);
        }
        let assessment = run_notes
            .assessment()
            .ok_or_else(|| Error::Runtime { message: format!("the exec {exec_id} was never assessed") })?;
        let (mut stdout, mut stderr) = Default::default();
        // A command that never started has no output.
        if view.summary.started_at.is_some() && view.protections.is_some() {
            [stdout, stderr] = self.printed_by(&view, running.as_deref(), SHOWN).await?.map(OutputPart::into_text);
        }
        let in_context = view.policy_snapshot["code"]["context_id"].is_string();
        let answer = run_notes.answer().unwrap_or_default();
        let raised = answer.raised.filter(|_| view.summary.status == Status::Failed);
        Ok(CodeRan {
            results: in_context.then_some(answer.results),
            success: view.summary.status == Status::Succeeded,
            stdout,
            stderr,
            exit_code: view.summary.exit_code.unwrap_or(NO_EXIT_CODE),
            error: outright(&view, &assessment, locale).or(raised).or_else(|| error_of(&view, locale)),
            sandbox_type: view.summary.backend.clone(),
            execution_time_ms: view.summary.duration_ms.unwrap_or(0),
            files_created: match run_notes.files_created() {
                Created::These(files) => Some(files),
                Created::Unknown => None,
            },
            assessment,
            exec_id,
        })
    }
}

/// The reason in the client's language, if the risk assessment denied the code without an approval.
fn outright(view: &ExecView, assessment: &Assessment, locale: Locale) -> Option<String> {
    let reason = view.error_reason.as_ref()?;
    let is_told = reason.code == "POLICY_DENIED" && assessment.refusal(Locale::English)? == reason.message;
    if is_told { assessment.refusal(locale) } else { None }
}
