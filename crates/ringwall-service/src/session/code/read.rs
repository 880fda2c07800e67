//! Turns a request to run code into the order of an exec: assesses the code and chooses the box
//! that the session's rules demand.

use std::path::PathBuf;
use std::sync::Arc;

use ringwall_ids::ProjectId;
use ringwall_policy::{Code, Consent, Secret};
use ringwall_record::{Author, SessionKey};

use crate::boxes::{Language, WORKSPACE};
use crate::error::Error;
use crate::exec::code::{CodeRequest, CodeSpec, Input};
use crate::exec::spec::{Backend, ExecSpec, Needs, PROJECT, Target};
use crate::service::Service;

/// A bash function exported through the environment. It runs `python3` if the image or root has no
/// `python`.
const PYTHON: (&str, &str) = (
    "BASH_FUNC_python%%",
    "() { if type -P python >/dev/null; then command python \"$@\"; else command python3 \"$@\"; fi; }",
);

impl Service {
    /// Validates and assesses a request. Code that a person has edited goes through the same steps.
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
