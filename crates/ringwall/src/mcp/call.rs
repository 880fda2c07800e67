//! One tool call: starts an exec or a browser action, and waits for its end or for an approval that
//! the client's user cannot give.
//!
//! A repeated request with an answer resumes the exec or action of the first request and starts
//! nothing.

use std::collections::VecDeque;

use parking_lot::Mutex;
use ringwall_risk::Locale;
use ringwall_service::{
    ApprovalStatus, ApprovalView, BrowserAnswer, BrowserBegun, CodeBegun, CodeRequest, Error, ExecId, ExecView,
    Execution, Limit, OnBusy, Service, SessionCommand,
};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, InputRequiredResult, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::arguments::{CodeArguments, CommandArguments, SkillArguments, StatusArguments, read};
use super::caller::Caller;
use super::elicitation::{self, AskMethod, Seal, UserAnswer};
use super::follow::{Followed, Follower};
use super::results::{ApprovalState, ApprovalSummary, RunError, RunSummary, answer, error_result, service_error};
use super::tools::BuiltIn;
use super::{browser, skills};

/// The result of a cancelled request, if the client still reads it.
const CANCELLED: &str = "the request was cancelled";
/// As many calls as there may be open approvals on a server.
const MAX_PENDING_CALLS: usize = 2048;

/// A tool call and its context.
pub(super) struct Call<'a> {
    pub(super) service: &'a Service,
    pub(super) caller: &'a Caller,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) pending_calls: &'a PendingCalls,
    pub(super) seal: &'a Seal,
    /// The name of the tool as the client sent it.
    pub(super) tool: &'a str,
}

/// The tool that a name stands for.
enum ToolTarget {
    BuiltIn(BuiltIn),
    Skill(String),
}

/// A started exec or browser action, by the form of its result.
#[derive(Debug, Clone)]
pub(super) enum Started {
    Code(CodeBegun),
    Command(ExecId),
    Skill(ExecId),
    Browser(BrowserBegun),
}

impl Started {
    /// The current exec. It differs from the first one if an approver has changed the code.
    pub(super) fn exec_id(&self) -> ExecId {
        match self {
            Started::Code(begun) => begun.latest(),
            Started::Command(exec_id) | Started::Skill(exec_id) => exec_id.clone(),
            Started::Browser(begun) => begun.action_id.clone(),
        }
    }

    fn is(&self, exec_id: &ExecId) -> bool {
        matches!(self, Started::Code(begun) if begun.exec_id == *exec_id) || self.exec_id() == *exec_id
    }
}

/// The end of an exec or browser action.
pub(super) enum Ended {
    Exec(Box<ExecView>),
    Browser(BrowserAnswer),
}

/// The outcome of a question to the client's user.
enum Asked {
    /// The approval was answered or has ended.
    Settled,
    /// The approval is open and must be answered elsewhere. The error rejected this user's answer.
    Open(Option<Error>),
    /// The question is the result of the call.
    InputRequired(InputRequiredResult),
    /// The client cancelled the call.
    Cancelled,
}

/// Code and browser actions whose calls returned while an approval is open, for `approval_status`
/// and for the repeated request. The record has neither the results of browser actions, nor the
/// assessment of code and the files that it created.
#[derive(Debug, Default)]
pub(super) struct PendingCalls(Mutex<VecDeque<Started>>);

impl PendingCalls {
    fn keep(&self, started: Started) {
        let started = match started {
            Started::Code(begun) => Started::Code(begun.set_aside()),
            Started::Browser(_) => started,
            Started::Command(_) | Started::Skill(_) => return,
        };
        let mut kept = self.0.lock();
        if kept.iter().any(|known| known.is(&started.exec_id())) {
            return;
        }
        if kept.len() >= MAX_PENDING_CALLS {
            // Without its entry an unfinished browser action has no result; code has one in the record.
            let removable = |old: &Started| !matches!(old, Started::Browser(begun) if !begun.is_over());
            let oldest = kept.iter().position(removable).unwrap_or(0);
            kept.remove(oldest);
        }
        kept.push_back(started);
    }

    fn find(&self, exec_id: &ExecId) -> Option<Started> {
        self.0.lock().iter().find(|started| started.is(exec_id)).cloned()
    }
}

impl Call<'_> {
    pub(super) async fn make(&self, request: CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let name = self.tool;
        let target = match BuiltIn::find(name) {
            Some(tool) => ToolTarget::BuiltIn(tool),
            None => match skills::find(self.service, name).await {
                Ok(Some(id)) => ToolTarget::Skill(id),
                Ok(None) => return Err(ErrorData::invalid_params(format!("there is no tool {name}"), None)),
                Err(error) => return Ok(service_error(&error).into()),
            },
        };
        let result = match (request.request_state, target) {
            (Some(state), target) => {
                let Some((exec_id, approval_id)) = self.seal.open(self.caller, name, &state) else {
                    return Err(ErrorData::invalid_params(
                        "requestState: not issued to this caller for this tool",
                        None,
                    ));
                };
                let answer = elicitation::read_responses(request.input_responses.as_ref());
                self.resume(&target, exec_id, &approval_id, answer).await
            }
            (None, ToolTarget::Skill(id)) => self.call_skill(&id, request.arguments).await,
            (None, ToolTarget::BuiltIn(tool)) => match self.call_built_in(tool, request.arguments).await {
                Ok(result) => result,
                Err(wrong) => return Ok(error_result(wrong).into()),
            },
        };
        Ok(result.unwrap_or_else(|error| service_error(&error).into()))
    }

    /// The outer error is a message about invalid arguments.
    async fn call_built_in(
        &self,
        tool: BuiltIn,
        arguments: Option<JsonObject>,
    ) -> Result<Result<CallToolResponse, Error>, String> {
        let result = match tool {
            BuiltIn::RunCode => return Ok(self.run_code(read(arguments)?).await),
            BuiltIn::RunCommand => return Ok(self.run_command(read(arguments)?).await),
            BuiltIn::RunSkill => return Ok(self.run_skill(read(arguments)?).await),
            BuiltIn::Browser(tool) => return Ok(self.browse(tool, tool.check(arguments)?).await),
            BuiltIn::ReadFile => self.read_file(read(arguments)?).await,
            BuiltIn::WriteFile => self.write_file(read(arguments)?).await,
            BuiltIn::EditFile => self.edit_file(read(arguments)?).await,
            BuiltIn::ListFiles => self.list_files(read(arguments)?).await,
            BuiltIn::DeleteFile => self.delete_file(read(arguments)?).await,
            BuiltIn::ApprovalStatus => self.approval_status(read(arguments)?).await,
        };
        Ok(result.map(CallToolResponse::from))
    }

    async fn run_code(&self, arguments: CodeArguments) -> Result<CallToolResponse, Error> {
        let request = CodeRequest {
            session_id: self.caller.session(arguments.session_id),
            user_id: self.caller.user(),
            agent_id: Some(self.caller.agent()),
            code: arguments.code,
            language: arguments.language,
            timeout_s: arguments.timeout,
            backend: arguments.backend,
            max_memory_mb: arguments.max_memory_mb,
            max_output_bytes: None,
            files: arguments.files.into_iter().map(|file| (file.path, file.content.into_bytes())).collect(),
            context_id: arguments.context_id,
            on_busy: OnBusy::Wait,
        };
        let begun = self.service.begin_code(&self.caller.principal, request).await?;
        self.wait_for_result(Started::Code(begun)).await
    }

    async fn run_command(&self, arguments: CommandArguments) -> Result<CallToolResponse, Error> {
        let command = SessionCommand {
            session_id: self.caller.session(arguments.session_id),
            user_id: self.caller.user(),
            agent_id: Some(self.caller.agent()),
            command: arguments.command,
            cwd: arguments.cwd,
            timeout_ms: arguments.timeout_ms,
        };
        let started = self.service.begin_session_command(&self.caller.principal, command).await?;
        self.wait_for_result(Started::Command(started.exec_id)).await
    }

    async fn run_skill(&self, arguments: SkillArguments) -> Result<CallToolResponse, Error> {
        let SkillArguments { skill, command, args: arguments } = arguments;
        let what = Execution::Skill { skill, command, arguments };
        let started = self.service.begin_execution(&self.caller.principal, &self.caller.address(), what).await?;
        self.wait_for_result(Started::Command(started.exec_id)).await
    }

    /// Resumes the exec of an earlier request with the answer of the client's user.
    async fn resume(
        &self,
        target: &ToolTarget,
        exec_id: ExecId,
        approval_id: &str,
        answer: UserAnswer,
    ) -> Result<CallToolResponse, Error> {
        let view = self.service.approval(&self.caller.principal, approval_id).await?;
        let started = match (target, self.pending_calls.find(&exec_id)) {
            (ToolTarget::BuiltIn(BuiltIn::RunCode), Some(started @ Started::Code(_)))
            | (ToolTarget::BuiltIn(BuiltIn::Browser(_)), Some(started @ Started::Browser(_))) => started,
            (ToolTarget::BuiltIn(BuiltIn::RunCode | BuiltIn::RunCommand | BuiltIn::RunSkill), _) => {
                Started::Command(exec_id)
            }
            (ToolTarget::Skill(_), _) => Started::Skill(exec_id),
            (ToolTarget::BuiltIn(_), _) => {
                return Err(Error::NotFound { what: "pending request for this requestState".to_owned() });
            }
        };
        match answer {
            UserAnswer::Answer(given) => {
                match elicitation::submit(self.service, self.caller, approval_id, given).await {
                    Ok(()) => self.wait_for_result(started).await,
                    Err(error) => Ok(self.pending(started, &view, Some(&error)).into()),
                }
            }
            UserAnswer::None => Ok(self.pending(started, &view, None).into()),
            // Asks again if the approval is still open.
            UserAnswer::Missing => self.wait_for_result(started).await,
        }
    }

    /// Waits for the end of the exec or action, or for an approval that must come from elsewhere.
    pub(super) async fn wait_for_result(&self, started: Started) -> Result<CallToolResponse, Error> {
        let mut follower = Follower::new(self, &started).await?;
        loop {
            let exec_id = follower.exec_id.clone();
            let view = match follower.follow(self.end_of(&started, &exec_id)).await? {
                Followed::Ended(Ended::Exec(_)) if started.exec_id() != exec_id => {
                    // An approver changed the code, which runs as another exec.
                    follower = Follower::new(self, &started).await?;
                    continue;
                }
                Followed::Ended(ended) => return Ok(self.result(started, ended).await?.into()),
                Followed::Cancelled => return Ok(self.cancel(&started).await.into()),
                Followed::Asks(view) => view,
            };
            match self.ask(&mut follower, &view).await {
                Asked::Settled => {}
                Asked::Open(why) => return Ok(self.pending(started, &view, why.as_ref()).into()),
                Asked::InputRequired(question) => {
                    self.pending_calls.keep(started);
                    return Ok(question.into());
                }
                Asked::Cancelled => return Ok(self.cancel(&started).await.into()),
            }
        }
    }

    async fn end_of(&self, started: &Started, exec_id: &ExecId) -> Result<Ended, Error> {
        match started {
            Started::Browser(begun) => Ok(Ended::Browser(self.service.finish_browser(begun).await?)),
            Started::Code(_) | Started::Command(_) | Started::Skill(_) => {
                Ok(Ended::Exec(Box::new(self.service.finished(&self.caller.principal, exec_id).await?)))
            }
        }
    }

    /// Asks the client's user, if the client supports it.
    async fn ask(&self, follower: &mut Follower<'_>, view: &ApprovalView) -> Asked {
        match AskMethod::of(self.caller, self.context) {
            AskMethod::Unavailable => return Asked::Open(None),
            AskMethod::Result => return Asked::InputRequired(self.seal.result(self.caller, self.tool, view)),
            AskMethod::Request => {}
        }
        let ended = async {
            tokio::select! {
                () = self.context.ct.cancelled() => {}
                () = follower.settled(&view.id) => {}
            }
        };
        match elicitation::ask(&self.context.peer, view, ended).await {
            None if self.context.ct.is_cancelled() => Asked::Cancelled,
            None => Asked::Settled,
            Some(UserAnswer::None | UserAnswer::Missing) => Asked::Open(None),
            Some(UserAnswer::Answer(given)) => {
                let submitted = elicitation::submit(self.service, self.caller, view.id.as_str(), given).await;
                submitted.map_or_else(|error| Asked::Open(Some(error)), |()| Asked::Settled)
            }
        }
    }

    /// Cancels the exec or action of a cancelled request.
    async fn cancel(&self, started: &Started) -> CallToolResult {
        if let Started::Browser(begun) = started {
            begun.cancel();
            return error_result(CANCELLED);
        }
        let exec_id = started.exec_id();
        match self.service.cancel(&self.caller.principal, &exec_id).await {
            // It may have ended by itself meanwhile.
            Ok(_) | Err(Error::AlreadyEnded(_)) => {}
            Err(error) => tracing::warn!(%exec_id, %error, "could not cancel the exec of a cancelled MCP request"),
        }
        error_result(CANCELLED)
    }

    async fn result(&self, started: Started, ended: Ended) -> Result<CallToolResult, Error> {
        match (started, ended) {
            (_, Ended::Browser(answer)) => Ok(browser::result(answer)),
            (Started::Code(begun), Ended::Exec(view)) => Ok(self.code_summary(begun, &view).await?.into_result()),
            (Started::Skill(_), Ended::Exec(view)) => {
                self.with_artifacts(RunSummary::of_exec(self.service, &view).await?).await
            }
            (_, Ended::Exec(view)) => Ok(RunSummary::of_exec(self.service, &view).await?.into_result()),
        }
    }

    /// The result of code that has ended.
    async fn code_summary(&self, begun: CodeBegun, view: &ExecView) -> Result<RunSummary, Error> {
        let ran = self.service.finish_code(&self.caller.principal, begun, Locale::English).await?;
        Ok(RunSummary::of_code(view, ran))
    }

    /// The result while the approval is open. `why` is the reason if the client's own answer was
    /// rejected.
    fn pending(&self, started: Started, view: &ApprovalView, why: Option<&Error>) -> CallToolResult {
        let error = why.map(|error| RunError { code: error.code().to_owned(), message: error.to_string() });
        let result = match started {
            Started::Browser(_) => browser::pending(view, error),
            _ => RunSummary { error, ..RunSummary::pending(view) }.into_result(),
        };
        self.pending_calls.keep(started);
        result
    }

    async fn approval_status(&self, arguments: StatusArguments) -> Result<CallToolResult, Error> {
        let view = self.service.approval(&self.caller.principal, &arguments.approval_id).await?;
        let exec = match self.pending_calls.find(&view.exec_id) {
            Some(Started::Browser(begun)) if begun.is_over() => {
                browser::summary(self.service.finish_browser(&begun).await?)
            }
            Some(Started::Browser(_)) => RunSummary::pending(&view),
            pending => {
                let exec_id = pending.as_ref().map_or_else(|| view.exec_id.clone(), Started::exec_id);
                let exec = self.service.exec(&self.caller.principal, &exec_id).await?;
                match pending {
                    Some(Started::Code(begun)) if exec.summary.status.is_ended() => {
                        self.code_summary(begun, &exec).await?
                    }
                    _ => self.exec_state(&exec).await?,
                }
            }
        };
        let approval = ApprovalSummary::of(&view);
        let text = format!(
            "approval {}: {}\nexec {}: {}\n{}",
            approval.approval_id,
            approval.status,
            exec.exec_id,
            exec.status,
            exec.text()
        );
        Ok(answer(text, &ApprovalState { approval, exec }))
    }

    /// The state of an exec with the approval that it waits for now, which may be a later one than
    /// the client knows: for changed code, or for another host.
    async fn exec_state(&self, exec: &ExecView) -> Result<RunSummary, Error> {
        let mut ran = RunSummary::of_exec(self.service, exec).await?;
        if !exec.summary.status.is_ended() {
            let pending = Some(ApprovalStatus::Pending);
            let open = self
                .service
                .approvals(&self.caller.principal, pending, None, Limit::nearest(Limit::MAX.into()), None)
                .await?;
            let own = open.items.iter().find(|open| open.exec_id == exec.summary.exec_id);
            ran.approval = own.map(ApprovalSummary::of);
        }
        Ok(ran)
    }
}
