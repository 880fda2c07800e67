//! Runs code and reports its outcome, with an error text in English or Chinese. A denial, an
//! expired approval and a timeout are results; code that cannot be run at all is an error.

use std::sync::Arc;

use ringwall_ids::ExecId;
use ringwall_policy::DenialCode;
use ringwall_record::{Reason, Status};
use ringwall_risk::{Assessment, Locale};

use super::confirm::AUTO_REJECTED;
use crate::approvals::{APPROVAL_EXPIRED, DENIED_BY_PERSON};
use crate::auth::principal::Principal;
use crate::boxes::Bundle;
use crate::error::Error;
use crate::error::codes::OOM;
use crate::exec::artifacts::{OutputPart, SHOWN};
use crate::exec::code::{CodeBegun, CodeRequest, Input};
use crate::exec::outcome::RunNotes;
use crate::exec::registry::{RunningExec, over};
use crate::exec::spec::{ExecSpec, Target};
use crate::exec::submit::Submitted;
use crate::exec::view::ExecView;
use crate::service::Service;
use crate::session_ref::SessionAddress;

/// Reported if the exec has no exit code.
const NO_EXIT_CODE: i32 = -1;

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
        self.begin_spec(self.read_request(by, request, input).await?).await
    }

    /// Runs an exec and returns its outcome. The exec continues if the caller stops waiting.
    pub async fn run_code(&self, by: &Principal, request: CodeRequest, locale: Locale) -> Result<CodeRan, Error> {
        let begun = self.begin_code(by, request).await?;
        self.finish_code(by, begun, locale).await
    }

    /// Validates and assesses a request. Nothing is recorded yet.
    pub(crate) async fn read_request(
        &self,
        by: &Principal,
        request: CodeRequest,
        input: Input,
    ) -> Result<ExecSpec, Error> {
        let address = SessionAddress {
            session_id: request.session_id.clone(),
            user_id: request.user_id.clone(),
            agent_id: request.agent_id.clone(),
        };
        self.read_code(by.author(), address.resolve(by)?, request, input).await
    }

    /// Admits code. Code that is denied outright, or that a person has edited into code that is
    /// denied, is a recorded exec; other denials are errors.
    pub(crate) async fn begin_spec(&self, spec: ExecSpec) -> Result<CodeBegun, Error> {
        let Target::Code(code) = &spec.target else {
            return Err(Error::Runtime { message: "only code has an assessment".to_owned() });
        };
        let (assessment, replacement) = (code.judged.assessment.clone(), code.replacement.clone());
        let is_edited = code.replaces.is_some();
        let begun = |exec_id, status, running: Option<Arc<RunningExec>>| CodeBegun {
            exec_id,
            status,
            assessment,
            replacement,
            state: running.as_ref().map(|running| running.watch()),
            running,
        };
        match self.admit_and_follow(spec).await {
            Ok((Submitted { exec_id, status, .. }, running)) => Ok(begun(exec_id, status, running)),
            Err(Error::Denied { denial, exec_id }) if is_edited || denial.code == DenialCode::CodeDestructive => {
                Ok(begun(exec_id, Status::PolicyDenied, None))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for the outcome, following the exec to its replacement if a person has edited the
    /// code. The exec continues if the caller stops waiting.
    pub async fn finish_code(&self, by: &Principal, mut begun: CodeBegun, locale: Locale) -> Result<CodeRan, Error> {
        let ended = loop {
            let ended = match &mut begun.state {
                Some(state) => over(state).await,
                None => None,
            };
            match begun.replacement.get().cloned() {
                Some(next) => begun = next,
                None => break ended,
            }
        };
        let (view, notes) = match ended.as_deref() {
            Some(ended) => (ended.view.clone(), ended.notes.clone()),
            None => (self.exec(by, &begun.exec_id).await?, RunNotes::default()),
        };
        let CodeBegun { exec_id, assessment, running, .. } = begun;
        if let Some(failure) = view.failure() {
            return Err(failure);
        }
        if view.error_reason.as_ref().is_some_and(|reason| reason.code == "SERVER_STOPPED") {
            return Err(Error::Stopping);
        }
        let (mut stdout, mut stderr) = Default::default();
        // A command that never started has no output.
        if view.summary.started_at.is_some() && view.protections.is_some() {
            [stdout, stderr] = self.printed_by(&view, running.as_deref(), SHOWN).await?.map(OutputPart::into_text);
        }
        let in_context = view.policy_snapshot["code"]["context_id"].is_string();
        let answer = notes.cell.unwrap_or_default();
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
            files_created: notes.created_files,
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

/// `None` if the code succeeded.
fn error_of(view: &ExecView, locale: Locale) -> Option<String> {
    match (&view.error_reason, view.summary.exit_code) {
        (Some(reason), _) => Some(result(reason, locale)),
        (None, Some(0)) => None,
        (None, Some(code)) => Some(match locale {
            Locale::English => format!("It exited with code {code}."),
            Locale::Chinese => format!("退出码为 {code}。"),
        }),
        (None, None) => Some(match locale {
            Locale::English => "It has no exit code.".to_owned(),
            Locale::Chinese => "没有退出码。".to_owned(),
        }),
    }
}

fn refused(sentence: &str, locale: Locale) -> String {
    match locale {
        Locale::English => format!("Execution refused: {sentence}"),
        Locale::Chinese => format!("执行被拒绝: {sentence}"),
    }
}

fn result(reason: &Reason, locale: Locale) -> String {
    let Reason { code, message } = reason;
    // A person's own explanation is not translated.
    let reason = message.split_once(": ").map(|(_, reason)| reason);
    match (locale, code.as_str()) {
        (Locale::English, DENIED_BY_PERSON | AUTO_REJECTED | APPROVAL_EXPIRED | "POLICY_DENIED" | "POLICY_CHANGED") => {
            refused(message, locale)
        }
        (Locale::English, _) => message.clone(),
        (Locale::Chinese, DENIED_BY_PERSON) => match reason {
            Some(reason) => refused(&format!("用户拒绝了确认：{reason}"), locale),
            None => refused("用户拒绝了确认。", locale),
        },
        (Locale::Chinese, AUTO_REJECTED) => refused("会话设置为自动拒绝高风险代码。", locale),
        (Locale::Chinese, APPROVAL_EXPIRED) => refused("确认超时，无人答复。", locale),
        (Locale::Chinese, "POLICY_CHANGED") => refused("执行前会话的要求已更改，请重新提交。", locale),
        (Locale::Chinese, "POLICY_DENIED") => refused(message, locale),
        (Locale::Chinese, "TIMEOUT") => format!("执行超时: {message}"),
        (Locale::Chinese, OOM) => format!("内存不足: {message}"),
        (Locale::Chinese, "CANCELLED") => "执行已取消。".to_owned(),
        (Locale::Chinese, _) => message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_has_the_same_prefix_for_all_reasons() {
        let result = |code: &str, message: &str, locale| {
            result(&Reason { code: code.to_owned(), message: message.to_owned() }, locale)
        };
        for code in [DENIED_BY_PERSON, AUTO_REJECTED, APPROVAL_EXPIRED, "POLICY_DENIED"] {
            assert!(result(code, "x", Locale::English).starts_with("Execution refused: "), "{code}");
            assert!(result(code, "x", Locale::Chinese).starts_with("执行被拒绝: "), "{code}");
        }
        let said = result(DENIED_BY_PERSON, "denied by a person: not today", Locale::Chinese);
        assert_eq!(said, "执行被拒绝: 用户拒绝了确认：not today");
        assert_eq!(result("TIMEOUT", "timed out (limit 1000 ms)", Locale::English), "timed out (limit 1000 ms)");
    }
}
