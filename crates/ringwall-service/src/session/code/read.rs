//! Turns a request to run code into an exec: validates and assesses the code, and chooses the box
//! that the session's rules require.
//!
//! Code that a person has edited in an approval takes the same steps as a new exec, which refers to
//! the original one. The original exec ends as replaced and never runs, because a recorded intent
//! never changes. The edit is not an approval: if the edited code needs one, the server asks again.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use ringwall_ids::{ApprovalId, ProjectId};
use ringwall_policy::{Code, Consent, Secret};
use ringwall_record::{Author, SessionKey};
use serde_json::json;

use crate::boxes::{Language, WORKSPACE};
use crate::error::Error;
use crate::exec::code::{CodeBegun, CodeRequest, CodeSpec, Input};
use crate::exec::lifecycle::{Exec, Step};
use crate::exec::outcome::ExecResult;
use crate::exec::spec::{Backend, ExecSpec, Needs, PROJECT, Target};
use crate::service::Service;

/// A bash function exported through the environment. It runs `python3` if the image or root has no
/// `python`.
const PYTHON: (&str, &str) = (
    "BASH_FUNC_python%%",
    "() { if type -P python >/dev/null; then command python \"$@\"; else command python3 \"$@\"; fi; }",
);

impl Service {
    pub(super) async fn read_code(
        &self,
        author: Author,
        session: SessionKey,
        request: CodeRequest,
        stdin: Input,
    ) -> Result<ExecSpec, Error> {
        request.check(&stdin)?;
        request.files()?;
        let user = &session.user_id;
        let assessment = Arc::new(self.assess_for(user, request.language.into(), request.code.clone()).await?);
        let rules = self.session_rules(&session).await?;
        let choice = self.choose_box(&session, request.asked_backend(), rules.mode, assessment.level).await?;
        let layers = request.layers(self.settings_now().operator.clone(), stdin.ends())?;
        let words = request.words();
        let mut spec = ExecSpec {
            author,
            idempotency: None,
            user_id: session.user_id.clone(),
            agent_id: session.agent_id.clone(),
            project_id: PROJECT.parse::<ProjectId>()?,
            task_id: None,
            conversation_id: Some(session.session_id.to_string()),
            skill_id: None,
            backend: choice.backend,
            image: choice.image,
            argv: choice.denial.map_or_else(|| Ok(words.iter().map(Into::into).collect()), Err),
            words,
            cwd: PathBuf::from(WORKSPACE),
            env: Default::default(),
            layers,
            target: Target::Agent { needs: Needs::Nothing },
        };
        let has_link = spec.backend == Backend::Native && spec.image.is_none();
        if request.language == Language::Shell && request.code.contains("python") && !has_link {
            spec.env.insert(PYTHON.0.to_owned(), Secret::new(PYTHON.1));
        }
        let judged = Code { assessment, mode: rules.mode, consent: Consent::NotAsked };
        spec.target = Target::Code(Box::new(CodeSpec {
            session,
            request,
            judged,
            rules,
            replaces: None,
            replacement: Default::default(),
            isolation: choice.isolation,
            stdin,
        }));
        Ok(spec)
    }
}

impl Exec {
    /// Admits the edited code as a new exec and returns the result of this one.
    pub(crate) async fn replace_code(&self, edited: String, approval: &ApprovalId, by: &str) -> Step<ExecResult> {
        let Target::Code(code) = &self.spec.target else {
            return Err(ExecResult::internal("a person can edit only code").into());
        };
        let request = CodeRequest { code: edited, ..code.request.clone() };
        // The new exec of a process keeps an open input. A terminal whose command needs an approval
        // is cancelled, so its command is never edited.
        let input = match &code.stdin {
            Input::Open => Input::Open,
            Input::Ends | Input::Terminal(_) => Input::Ends,
        };
        let author = self.spec.author.clone();
        let mut spec = self.service.read_code(author, code.session.clone(), request, input).await?;
        if let Target::Code(next) = &mut spec.target {
            next.replaces = Some(json!({ "exec_id": self.intent.exec_id, "approval": approval, "changed_by": by }));
        }
        let next = self.service.begin_next(spec).await?;
        let result = ExecResult::replaced_by(&next.exec_id);
        // Cannot fail: an exec is replaced at most once.
        let _ = code.replacement.set(next);
        Ok(result)
    }
}

impl Service {
    /// Boxed, because admitting an exec from within another one's future would make the future's
    /// type recursive.
    fn begin_next(&self, spec: ExecSpec) -> BoxFuture<'static, Result<CodeBegun, Error>> {
        let service = self.clone();
        Box::pin(async move { service.begin_spec(spec).await })
    }
}
