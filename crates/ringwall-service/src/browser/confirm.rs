//! Asks for approval of risky browser actions, in the session's confirmation mode. The text to be
//! typed is not part of the question, so it is neither recorded nor shown.

use std::sync::Arc;

use ringwall_browser::FieldKind;
use ringwall_record::{ApprovalKind, Confirmation, Digest, RiskLevel};
use ringwall_risk::{Content, Level};
use serde_json::json;

use super::perform::RunningAction;
use super::request::{ActionRequest, shortened};
use crate::approvals::{Decision, Question, StillStands};
use crate::boxes::browser::Fault;
use crate::settings::Rules;

const RULES_CHANGED: &str = "the session's rules changed while it waited for approval; send it again";

/// Describes what needs approval; `None` if the action needs none.
pub(super) fn needs_approval(request: &ActionRequest, field: FieldKind) -> Option<String> {
    use ActionRequest::{Evaluate, Fill, Press, Select};
    let is_secret = matches!(field, FieldKind::Password | FieldKind::Payment);
    match request {
        Evaluate { .. } => Some("run a script in the page".to_owned()),
        Press { .. } if !request.types_character() => None,
        Fill { .. } | Press { .. } if is_secret => Some(format!("type into {field}")),
        Select { .. } if is_secret => Some(format!("choose in {field}")),
        // The agent's selector looks like a password or payment field, even if the page declares an
        // ordinary one.
        Fill { .. } | Select { .. } => {
            let assessed = ringwall_risk::assess(Content::Browser, &request.for_assessment().to_string());
            let is_risky = assessed.level >= Level::High;
            is_risky.then(|| "type into a field for a password or a payment".to_owned())
        }
        _ => None,
    }
}

impl RunningAction {
    /// Returns when the action on this page is approved.
    pub(super) async fn confirm(&self, request: &ActionRequest, doing: &str, page: &str) -> Result<(), Fault> {
        let rules = self.service.session_rules(&self.session).await?;
        let question = self.question(request, doing, page, &rules);
        let mut waiting = self.service.ask_in_mode(question, rules.confirmation).await?;
        tracing::info!(action_id = %self.id, approval = %waiting.id(), "a browser action waits for approval");
        let decision = waiting.decision().await;
        // The wait for an answer does not count as idle time of the browser.
        self.slot.used();
        let why = match decision {
            Decision::Approved { modified: Some(_), .. } => {
                "the code of a browser action cannot be edited; deny the action and tell the agent what to do instead"
                    .to_owned()
            }
            Decision::Approved { modified: None, .. } => match self.service.session_rules(&self.session).await {
                Ok(now) if now == rules => return Ok(()),
                Ok(_) | Err(_) => RULES_CHANGED.to_owned(),
            },
            Decision::Denied { .. } if rules.confirmation == Confirmation::AutoReject => {
                "the session's confirmation is auto_reject, and this action needs approval".to_owned()
            }
            Decision::Denied { reason: Some(reason), .. } => format!("a person has denied it: {reason}"),
            Decision::Denied { reason: None, .. } => "a person has denied it".to_owned(),
            Decision::Expired => "nobody answered in time".to_owned(),
            Decision::Cancelled => "the question was cancelled, or the server is stopping".to_owned(),
            Decision::Void => RULES_CHANGED.to_owned(),
        };
        Err(Fault::refused(format!("Refused: {why}")))
    }

    fn question(&self, request: &ActionRequest, doing: &str, page: &str, rules: &Rules) -> Question {
        // The target comes last: the agent chooses its text, which could imitate the rest of the
        // sentence.
        let target = match request.target() {
            Ok(Some(target)) => format!(": {}", shortened(&target.to_string())),
            Ok(None) | Err(_) => String::new(),
        };
        let code = match request {
            ActionRequest::Evaluate { script } => Some(script.clone()),
            _ => None,
        };
        let action = json!({
            "action_id": self.id, "action": request.verb(), "detail": request.detail(), "page": page,
            "session": self.session.session_id.as_str(),
        });
        Question {
            kind: ApprovalKind::Risk,
            requester: self.requester(format!("Browser at {page}: {doing}{target}")),
            code,
            requested_paths: Vec::new(),
            blocked_paths: Vec::new(),
            risk_level: RiskLevel::High,
            // For scripts the dialog shows the code instead of the command, so the page is repeated
            // here.
            patterns: vec![format!("It would {doing} at {page}.")],
            files: Default::default(),
            digest: Digest::of(action.to_string().as_bytes()),
            still_stands: self.rules_stand(rules),
        }
    }

    /// The check that the session's rules have not changed since the question was asked.
    fn rules_stand(&self, rules: &Rules) -> StillStands {
        let (service, session, rules) = (self.service.clone(), self.session.clone(), rules.clone());
        Arc::new(move || {
            let (service, session, rules) = (service.clone(), session.clone(), rules.clone());
            // Rules that cannot be read count as changed.
            Box::pin(async move { service.session_rules(&session).await.is_ok_and(|now| now == rules) })
        })
    }
}
