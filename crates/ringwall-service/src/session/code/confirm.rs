//! Asks for the approval of risky code: composes the question, and answers it itself if the
//! session's confirmation is `auto_approve` or `auto_reject`.
//!
//! The question contains the whole code. The record gets the question and one answer in every case.
//! The session's rules are read again before an answer is accepted and again after it.

use std::sync::Arc;

use ringwall_policy::{Ask, Consent};
use ringwall_record::{ApprovalFiles, ApprovalKind, Confirmation, Digest, RiskLevel, Uncovered, UncoveredFile};
use ringwall_risk::Locale;
use serde_json::json;

use super::choose_box::Choice;
use crate::approvals::{Question, StillStands, Waiting};
use crate::boxes::WORKSPACE;
use crate::egress::Requester;
use crate::exec::code::CodeSpec;
use crate::exec::lifecycle::{Exec, Step};
use crate::exec::outcome::ExecResult;
use crate::exec::spec::Target;

pub(super) const AUTO_REJECTED: &str = "AUTO_REJECTED";

impl Exec {
    /// Records the question and asks as the session's `confirmation` says. Returns a handle that
    /// waits for the answer, or the result of the exec if it was rejected or the question failed.
    pub(crate) async fn ask_about_code(&self, code: &CodeSpec, ask: &Ask) -> Step<Waiting> {
        let question = self.code_question(code, ask);
        let mode = code.rules.confirmation;
        let waiting = self.service.ask_in_mode(question, mode).await?;
        if mode == Confirmation::AutoReject {
            let message = "the session rejects code that needs an approval";
            return Err(ExecResult::denied(AUTO_REJECTED, message).into());
        }
        Ok(waiting)
    }

    fn code_question(&self, code: &CodeSpec, ask: &Ask) -> Question {
        let assessment = &code.judged.assessment;
        let level = ask.risk.as_ref().map_or(assessment.level, |risk| risk.level);
        let findings = ask.risk.as_ref().map_or(&assessment.findings, |risk| &risk.findings);
        let patterns = findings.iter().map(|finding| {
            format!("{} (line {}): {}", finding.rule.id, finding.line, finding.message(Locale::English))
        });
        let terms = ringwall_policy::merge(&self.spec.layers).ok().map(|effective| effective.terms());
        let action = json!({
            "words": self.spec.words, "cwd": self.spec.cwd, "env_keys": self.intent.env_keys,
            "code": code.note(), "backend": self.intent.backend, "policy": terms,
        });
        let language = code.request.language;
        Question {
            kind: ApprovalKind::Risk,
            requester: Requester {
                command: format!(
                    "Run {} code{}: {}",
                    language.key(),
                    code.files_note(),
                    assessment.reason(Locale::English)
                ),
                ..self.requester()
            },
            code: Some(code.request.code.clone()),
            requested_paths: Vec::new(),
            blocked_paths: Vec::new(),
            risk_level: risk_level(level),
            patterns: patterns.collect(),
            files: uncovered_files(),
            digest: Digest::of(action.to_string().as_bytes()),
            still_stands: self.rules_stand(code, terms),
        }
    }

    /// Returns a check that the session's rules and the policy terms of the code are those at the
    /// time of the question.
    fn rules_stand(&self, code: &CodeSpec, terms: Option<String>) -> StillStands {
        let (request, rules, has_timeout) = (code.request.clone(), code.rules.clone(), code.stdin.ends());
        let parts = Arc::new((self.service.clone(), code.session.clone(), rules, request, terms));
        Arc::new(move || {
            let parts = parts.clone();
            Box::pin(async move {
                let (service, session, rules, request, terms) = parts.as_ref();
                // Rules that cannot be read may have changed.
                let rules_stand = service.session_rules(session).await.is_ok_and(|now| now == *rules);
                let layers = request.layers(service.settings_now().operator.clone(), has_timeout);
                let now = layers.ok().and_then(|layers| ringwall_policy::merge(&layers).ok());
                rules_stand && now.map(|effective| effective.terms()) == *terms
            })
        })
    }

    /// Reads the session's rules, the settings and the available backends again. Denies the exec if
    /// it would need another backend, because the record names the one of its intent.
    pub(crate) async fn reload_code_rules(&mut self) -> Step<()> {
        let service = self.service.clone();
        let Target::Code(code) = &mut self.spec.target else { return Ok(()) };
        let rules = service.session_rules(&code.session).await?;
        let (asked, level) = (code.request.asked_backend(), code.judged.assessment.level);
        let Choice { backend, image, isolation, denial } =
            service.choose_box(&code.session, asked, rules.mode, level).await?;
        code.judged.mode = rules.mode;
        code.rules = rules;
        let layers = code.request.layers(service.settings_now().operator.clone(), code.stdin.ends());
        let layers = layers.map_err(|error| ExecResult::denied("POLICY_DENIED", error.to_string()))?;
        let is_same = (backend, &image, isolation) == (self.spec.backend, &self.spec.image, code.isolation);
        if !is_same || denial.is_some() {
            let message = "the session's required isolation changed before the exec started; submit it again";
            return Err(ExecResult::denied("POLICY_CHANGED", message).into());
        }
        self.spec.layers = layers;
        Ok(())
    }
}

impl CodeSpec {
    /// Describes the files that the request adds to the session.
    fn files_note(&self) -> String {
        match self.request.files.as_slice() {
            [] => String::new(),
            [(only, _)] => format!(" with the file {only:?}"),
            [(first, _), rest @ ..] => format!(" with the file {first:?} and {} more", rest.len()),
        }
    }

    /// Notes that a person has approved this code.
    pub(crate) fn consent(&mut self) {
        self.judged.consent = Consent::Given;
    }
}

/// An approval covers the code, not the files that the code opens.
fn uncovered_files() -> ApprovalFiles {
    let opened = UncoveredFile { path: WORKSPACE.to_owned(), why: Uncovered::OpenedByCode };
    ApprovalFiles { covered: Vec::new(), not_covered: vec![opened] }
}

const fn risk_level(level: ringwall_risk::Level) -> RiskLevel {
    match level {
        ringwall_risk::Level::Safe => RiskLevel::Safe,
        ringwall_risk::Level::Low => RiskLevel::Low,
        ringwall_risk::Level::Medium => RiskLevel::Medium,
        ringwall_risk::Level::High => RiskLevel::High,
        ringwall_risk::Level::Critical => RiskLevel::Critical,
    }
}
