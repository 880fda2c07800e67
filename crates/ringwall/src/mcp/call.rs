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

use super::answers::{Asked, Failure, Ran, Standing, answer, failed, refused};
use super::approval::{self, Reach, Said, Seal};
use super::arguments::{CodeArguments, CommandArguments, SkillArguments, StatusArguments, read};
use super::code::{self, Held};
use super::run::{Followed, Follower, take_back, tell};
use super::tools::BuiltIn;
use super::who::Who;
use super::{files, skills};

/// The result of a cancelled request, if the client still reads it.
pub(super) const TAKEN_BACK: &str = "the request was cancelled";

/// A tool call and its context.
pub(super) struct Call<'a> {
    pub(super) service: &'a Service,
    pub(super) who: &'a Who,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) held: &'a Held,
    pub(super) seal: &'a Seal,
    /// The name of the tool as the client sent it.
    pub(super) tool: &'a str,
}

/// The tool that a name stands for.
enum Means {
    BuiltIn(BuiltIn),
    Skill(String),
}

/// A started exec, by the form of its result.
enum Begun {
    Code(CodeBegun),
    Command(ExecId),
    Skill(ExecId),
}

impl Begun {
    fn exec_id(&self) -> ExecId {
        match self {
            Begun::Code(begun) => begun.latest(),
            Begun::Command(exec_id) | Begun::Skill(exec_id) => exec_id.clone(),
        }
    }
}

impl Call<'_> {
    pub(super) async fn make(&self, request: CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let name = self.tool;
        let means = match BuiltIn::find(name) {
            Some(tool) => Means::BuiltIn(tool),
            None => match skills::find(self.service, name).await {
                Ok(Some(id)) => Means::Skill(id),
                Ok(None) => return Err(ErrorData::invalid_params(format!("there is no tool {name}"), None)),
                Err(error) => return Ok(failed(&error).into()),
            },
        };
        let made = match (request.request_state, means) {
            (Some(state), means) => {
                let Some((exec_id, approval_id)) = self.seal.open(self.who, name, &state) else {
                    return Err(ErrorData::invalid_params(
                        "requestState: not issued to this caller for this tool",
                        None,
                    ));
                };
                let said = approval::brought(request.input_responses.as_ref());
                self.resume(&means, exec_id, &approval_id, said).await
            }
            (None, Means::Skill(id)) => self.call_skill(&id, request.arguments).await,
            (None, Means::BuiltIn(tool)) => match self.call_built_in(tool, request.arguments).await {
                Ok(made) => made,
                Err(wrong) => return Ok(refused(wrong).into()),
            },
        };
        Ok(made.unwrap_or_else(|error| failed(&error).into()))
    }

    /// The outer error is a message about invalid arguments.
    async fn call_built_in(
        &self,
        tool: BuiltIn,
        arguments: Option<JsonObject>,
    ) -> Result<Result<CallToolResponse, Error>, String> {
        let (service, who) = (self.service, self.who);
        let made = match tool {
            BuiltIn::RunCode => return Ok(self.run_code(read(arguments)?).await),
            BuiltIn::RunCommand => return Ok(self.run_command(read(arguments)?).await),
            BuiltIn::RunSkill => return Ok(self.run_skill(read(arguments)?).await),
            BuiltIn::Browser(tool) => return Ok(self.browse(tool, tool.check(arguments)?).await),
            BuiltIn::ReadFile => files::read(service, who, read(arguments)?).await,
            BuiltIn::WriteFile => files::write(service, who, read(arguments)?).await,
            BuiltIn::EditFile => files::edit(service, who, read(arguments)?).await,
            BuiltIn::ListFiles => files::list(service, who, read(arguments)?).await,
            BuiltIn::DeleteFile => files::delete(service, who, read(arguments)?).await,
            BuiltIn::ApprovalStatus => self.approval_status(read(arguments)?).await,
        };
        Ok(made.map(CallToolResponse::from))
    }

    async fn run_code(&self, asked: CodeArguments) -> Result<CallToolResponse, Error> {
        let begun = code::begin(self.service, self.who, asked).await?;
        self.conduct(Begun::Code(begun)).await
    }

    async fn run_command(&self, asked: CommandArguments) -> Result<CallToolResponse, Error> {
        let command = SessionCommand {
            session_id: self.who.session(asked.session_id),
            user_id: self.who.user(),
            agent_id: Some(self.who.agent()),
            command: asked.command,
            cwd: asked.cwd,
            timeout_ms: asked.timeout_ms,
        };
        let begun = self.service.begin_session_command(&self.who.principal, command).await?;
        self.conduct(Begun::Command(begun.exec_id)).await
    }

    async fn run_skill(&self, asked: SkillArguments) -> Result<CallToolResponse, Error> {
        let SkillArguments { skill, command, args: arguments } = asked;
        let what = Execution::Skill { skill, command, arguments };
        let begun = self.service.begin_execution(&self.who.principal, &self.who.address(), what).await?;
        self.conduct(Begun::Command(begun.exec_id)).await
    }

    async fn call_skill(&self, id: &str, arguments: Option<JsonObject>) -> Result<CallToolResponse, Error> {
        let exec_id = skills::begin(self.service, self.who, id, arguments).await?;
        self.conduct(Begun::Skill(exec_id)).await
    }

    /// Resumes the exec of an earlier request with the answer of the client's user.
    async fn resume(
        &self,
        means: &Means,
        exec_id: ExecId,
        approval_id: &str,
        said: Said,
    ) -> Result<CallToolResponse, Error> {
        let forgotten = || Error::NotFound { what: "pending request for this requestState".to_owned() };
        let view = self.service.approval(&self.who.principal, approval_id).await?;
        if let Means::BuiltIn(BuiltIn::Browser(_)) = means {
            let begun = self.held.find_browser(&exec_id).ok_or_else(forgotten)?;
            return match said {
                Said::Answer(answer) => match approval::give(self.service, self.who, approval_id, answer).await {
                    Ok(()) => self.conduct_browser(begun).await,
                    Err(error) => Ok(self.browser_pending(begun, &view, Some(&error)).into()),
                },
                Said::Nothing => Ok(self.browser_pending(begun, &view, None).into()),
                Said::Unasked => self.conduct_browser(begun).await,
            };
        }
        let begun = match (means, self.held.find(&exec_id)) {
            (Means::BuiltIn(BuiltIn::RunCode), Some(begun)) => Begun::Code(begun),
            (Means::BuiltIn(BuiltIn::RunCode | BuiltIn::RunCommand | BuiltIn::RunSkill), _) => Begun::Command(exec_id),
            (Means::Skill(_), _) => Begun::Skill(exec_id),
            (Means::BuiltIn(_), _) => return Err(forgotten()),
        };
        match said {
            Said::Answer(answer) => match approval::give(self.service, self.who, approval_id, answer).await {
                Ok(()) => self.conduct(begun).await,
                Err(error) => Ok(self.pending(begun, &view, Some(&error)).into()),
            },
            Said::Nothing => Ok(self.pending(begun, &view, None).into()),
            // Asks again if the approval is still open.
            Said::Unasked => self.conduct(begun).await,
        }
    }

    /// Waits until the exec has ended or needs an approval from elsewhere.
    async fn conduct(&self, begun: Begun) -> Result<CallToolResponse, Error> {
        let mut follower = Follower::new(self.service, self.who, self.context, begun.exec_id()).await?;
        loop {
            let view = match follower.follow().await? {
                Followed::Ended(_) if begun.exec_id() != follower.exec_id => {
                    // An approver changed the code, which runs as another exec.
                    follower = Follower::new(self.service, self.who, self.context, begun.exec_id()).await?;
                    continue;
                }
                Followed::Ended(view) => return Ok(self.tell_end(begun, &view).await?.into()),
                Followed::GivenUp => return Ok(refused(TAKEN_BACK).into()),
                Followed::Asks(view) => view,
            };
            match Reach::of(self.who, self.context) {
                Reach::Elsewhere => return Ok(self.pending(begun, &view, None).into()),
                Reach::Result => {
                    self.hold(begun);
                    return Ok(self.seal.result(self.who, self.tool, &view).into());
                }
                Reach::Request => {}
            }
            let said = tokio::select! {
                biased;
                () = self.context.ct.cancelled() => {
                    take_back(self.service, self.who, &view.exec_id).await;
                    return Ok(refused(TAKEN_BACK).into());
                }
                () = follower.settled(&view.id) => continue,
                said = approval::ask(self.context, &view) => said,
            };
            let given = match said {
                Said::Nothing | Said::Unasked => return Ok(self.pending(begun, &view, None).into()),
                Said::Answer(answer) => approval::give(self.service, self.who, view.id.as_str(), answer).await,
            };
            if let Err(error) = given {
                return Ok(self.pending(begun, &view, Some(&error)).into());
            }
        }
    }

    async fn tell_end(&self, begun: Begun, view: &ExecView) -> Result<CallToolResult, Error> {
        match begun {
            Begun::Code(begun) => Ok(code::tell(self.service, self.who, view, begun).await?.into_result()),
            Begun::Command(_) => Ok(tell(self.service, view).await?.into_result()),
            Begun::Skill(_) => {
                let ran = tell(self.service, view).await?;
                skills::with_artifacts(self.service, self.who, ran).await
            }
        }
    }

    /// The result while the approval is open. `why` is the reason if the client's own answer was
    /// rejected.
    fn pending(&self, begun: Begun, view: &ApprovalView, why: Option<&Error>) -> CallToolResult {
        self.hold(begun);
        let mut ran = Ran::pending(view);
        ran.error = why.map(|error| Failure { code: error.code().to_owned(), message: error.to_string() });
        ran.into_result()
    }

    fn hold(&self, begun: Begun) {
        match begun {
            Begun::Code(begun) => self.held.keep(begun),
            Begun::Command(_) | Begun::Skill(_) => {}
        }
    }

    async fn approval_status(&self, asked: StatusArguments) -> Result<CallToolResult, Error> {
        let view = self.service.approval(&self.who.principal, &asked.approval_id).await?;
        if let Some(begun) = self.held.find_browser(&view.exec_id) {
            let ran = self.browser_standing(&begun, &view).await?;
            return Ok(told_standing(&view, ran));
        }
        let held = self.held.find(&view.exec_id);
        let exec_id = held.as_ref().map_or_else(|| view.exec_id.clone(), CodeBegun::latest);
        let exec = self.service.exec(&self.who.principal, &exec_id).await?;
        let ran = match held.filter(|_| exec.summary.status.is_ended()) {
            Some(begun) => code::tell(self.service, self.who, &exec, begun).await?,
            None => self.standing(&exec).await?,
        };
        Ok(told_standing(&view, ran))
    }

    /// The state of an exec with the approval that it waits for now, which may be a later one than
    /// the client knows: for changed code, or for another host.
    async fn standing(&self, exec: &ExecView) -> Result<Ran, Error> {
        let mut ran = tell(self.service, exec).await?;
        if !exec.summary.status.is_ended() {
            let pending = Some(ApprovalStatus::Pending);
            let open = self
                .service
                .approvals(&self.who.principal, pending, None, Limit::nearest(Limit::MAX.into()), None)
                .await?;
            let own = open.items.iter().find(|open| open.exec_id == exec.summary.exec_id);
            ran.approval = own.map(Asked::of);
        }
        Ok(ran)
    }
}

fn told_standing(view: &ApprovalView, ran: Ran) -> CallToolResult {
    let approval = Asked::of(view);
    let text = format!(
        "approval {}: {}\nexec {}: {}\n{}",
        approval.approval_id,
        approval.status,
        ran.exec_id,
        ran.status,
        ran.text()
    );
    answer(text, &Standing { approval, exec: ran })
}
