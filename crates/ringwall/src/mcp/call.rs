//! One tool call: finds the tool, starts it, and waits for its end or for an approval that the
//! client's user cannot give.
//!
//! A repeated request with an answer resumes the exec of the first request and starts nothing.

use ringwall_service::{
    ApprovalStatus, ApprovalView, CodeBegun, Error, ExecId, ExecView, Execution, Limit, Service, SessionCommand,
};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::arguments::{CodeArguments, CommandArguments, SkillArguments, StatusArguments, read};
use super::caller::Caller;
use super::code::{self, PendingCalls};
use super::elicitation::{self, AskMethod, Seal, UserAnswer};
use super::follow::{Followed, Follower, cancel, summarize};
use super::results::{ApprovalState, ApprovalSummary, RunError, RunSummary, answer, error_result, service_error};
use super::tools::BuiltIn;
use super::{files, skills};

/// The result of a cancelled request, if the client still reads it.
pub(super) const CANCELLED: &str = "the request was cancelled";

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

/// A started exec, by the form of its result.
enum Started {
    Code(CodeBegun),
    Command(ExecId),
    Skill(ExecId),
}

impl Started {
    fn exec_id(&self) -> ExecId {
        match self {
            Started::Code(started) => started.latest(),
            Started::Command(exec_id) | Started::Skill(exec_id) => exec_id.clone(),
        }
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
        let (service, caller) = (self.service, self.caller);
        let result = match tool {
            BuiltIn::RunCode => return Ok(self.run_code(read(arguments)?).await),
            BuiltIn::RunCommand => return Ok(self.run_command(read(arguments)?).await),
            BuiltIn::RunSkill => return Ok(self.run_skill(read(arguments)?).await),
            BuiltIn::Browser(tool) => return Ok(self.browse(tool, tool.check(arguments)?).await),
            BuiltIn::ReadFile => files::read(service, caller, read(arguments)?).await,
            BuiltIn::WriteFile => files::write(service, caller, read(arguments)?).await,
            BuiltIn::EditFile => files::edit(service, caller, read(arguments)?).await,
            BuiltIn::ListFiles => files::list(service, caller, read(arguments)?).await,
            BuiltIn::DeleteFile => files::delete(service, caller, read(arguments)?).await,
            BuiltIn::ApprovalStatus => self.approval_status(read(arguments)?).await,
        };
        Ok(result.map(CallToolResponse::from))
    }

    async fn run_code(&self, arguments: CodeArguments) -> Result<CallToolResponse, Error> {
        let started = code::begin(self.service, self.caller, arguments).await?;
        self.wait_for_result(Started::Code(started)).await
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

    async fn call_skill(&self, id: &str, arguments: Option<JsonObject>) -> Result<CallToolResponse, Error> {
        let exec_id = skills::begin(self.service, self.caller, id, arguments).await?;
        self.wait_for_result(Started::Skill(exec_id)).await
    }

    /// Resumes the exec of an earlier request with the answer of the client's user.
    async fn resume(
        &self,
        target: &ToolTarget,
        exec_id: ExecId,
        approval_id: &str,
        answer: UserAnswer,
    ) -> Result<CallToolResponse, Error> {
        let forgotten = || Error::NotFound { what: "pending request for this requestState".to_owned() };
        let view = self.service.approval(&self.caller.principal, approval_id).await?;
        if let ToolTarget::BuiltIn(BuiltIn::Browser(_)) = target {
            let started = self.pending_calls.find_browser(&exec_id).ok_or_else(forgotten)?;
            return match answer {
                UserAnswer::Answer(given) => {
                    match elicitation::submit(self.service, self.caller, approval_id, given).await {
                        Ok(()) => self.wait_for_browser(started).await,
                        Err(error) => Ok(self.browser_pending(started, &view, Some(&error)).into()),
                    }
                }
                UserAnswer::None => Ok(self.browser_pending(started, &view, None).into()),
                UserAnswer::Missing => self.wait_for_browser(started).await,
            };
        }
        let started = match (target, self.pending_calls.find(&exec_id)) {
            (ToolTarget::BuiltIn(BuiltIn::RunCode), Some(started)) => Started::Code(started),
            (ToolTarget::BuiltIn(BuiltIn::RunCode | BuiltIn::RunCommand | BuiltIn::RunSkill), _) => {
                Started::Command(exec_id)
            }
            (ToolTarget::Skill(_), _) => Started::Skill(exec_id),
            (ToolTarget::BuiltIn(_), _) => return Err(forgotten()),
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

    /// Waits until the exec has ended or needs an approval from elsewhere.
    async fn wait_for_result(&self, started: Started) -> Result<CallToolResponse, Error> {
        let mut follower = Follower::new(self.service, self.caller, self.context, started.exec_id()).await?;
        loop {
            let view = match follower.follow().await? {
                Followed::Ended(_) if started.exec_id() != follower.exec_id => {
                    // An approver changed the code, which runs as another exec.
                    follower = Follower::new(self.service, self.caller, self.context, started.exec_id()).await?;
                    continue;
                }
                Followed::Ended(view) => return Ok(self.result(started, &view).await?.into()),
                Followed::GivenUp => return Ok(error_result(CANCELLED).into()),
                Followed::Asks(view) => view,
            };
            match AskMethod::of(self.caller, self.context) {
                AskMethod::Unavailable => return Ok(self.pending(started, &view, None).into()),
                AskMethod::Result => {
                    self.hold(started);
                    return Ok(self.seal.result(self.caller, self.tool, &view).into());
                }
                AskMethod::Request => {}
            }
            let answer = tokio::select! {
                biased;
                () = self.context.ct.cancelled() => {
                    cancel(self.service, self.caller, &view.exec_id).await;
                    return Ok(error_result(CANCELLED).into());
                }
                () = follower.settled(&view.id) => continue,
                answer = elicitation::ask(self.context, &view) => answer,
            };
            let submitted = match answer {
                UserAnswer::None | UserAnswer::Missing => return Ok(self.pending(started, &view, None).into()),
                UserAnswer::Answer(given) => {
                    elicitation::submit(self.service, self.caller, view.id.as_str(), given).await
                }
            };
            if let Err(error) = submitted {
                return Ok(self.pending(started, &view, Some(&error)).into());
            }
        }
    }

    async fn result(&self, started: Started, view: &ExecView) -> Result<CallToolResult, Error> {
        match started {
            Started::Code(started) => {
                Ok(code::summarize(self.service, self.caller, view, started).await?.into_result())
            }
            Started::Command(_) => Ok(summarize(self.service, view).await?.into_result()),
            Started::Skill(_) => {
                let ran = summarize(self.service, view).await?;
                skills::with_artifacts(self.service, self.caller, ran).await
            }
        }
    }

    /// The result while the approval is open. `why` is the reason if the client's own answer was
    /// rejected.
    fn pending(&self, started: Started, view: &ApprovalView, why: Option<&Error>) -> CallToolResult {
        self.hold(started);
        let mut ran = RunSummary::pending(view);
        ran.error = why.map(|error| RunError { code: error.code().to_owned(), message: error.to_string() });
        ran.into_result()
    }

    fn hold(&self, started: Started) {
        match started {
            Started::Code(started) => self.pending_calls.keep(started),
            Started::Command(_) | Started::Skill(_) => {}
        }
    }

    async fn approval_status(&self, arguments: StatusArguments) -> Result<CallToolResult, Error> {
        let view = self.service.approval(&self.caller.principal, &arguments.approval_id).await?;
        if let Some(started) = self.pending_calls.find_browser(&view.exec_id) {
            let ran = self.browser_state(&started, &view).await?;
            return Ok(state_result(&view, ran));
        }
        let pending = self.pending_calls.find(&view.exec_id);
        let exec_id = pending.as_ref().map_or_else(|| view.exec_id.clone(), CodeBegun::latest);
        let exec = self.service.exec(&self.caller.principal, &exec_id).await?;
        let ran = match pending.filter(|_| exec.summary.status.is_ended()) {
            Some(started) => code::summarize(self.service, self.caller, &exec, started).await?,
            None => self.exec_state(&exec).await?,
        };
        Ok(state_result(&view, ran))
    }

    /// The state of an exec with the approval that it waits for now, which may be a later one than
    /// the client knows: for changed code, or for another host.
    async fn exec_state(&self, exec: &ExecView) -> Result<RunSummary, Error> {
        let mut ran = summarize(self.service, exec).await?;
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

fn state_result(view: &ApprovalView, ran: RunSummary) -> CallToolResult {
    let approval = ApprovalSummary::of(view);
    let text = format!(
        "approval {}: {}\nexec {}: {}\n{}",
        approval.approval_id,
        approval.status,
        ran.exec_id,
        ran.status,
        ran.text()
    );
    answer(text, &ApprovalState { approval, exec: ran })
}
