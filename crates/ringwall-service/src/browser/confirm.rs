//! Asks for approval of risky browser actions, with the session's confirmation mode. The text to be
//! typed is not part of the question, so it is neither recorded nor shown.

use std::sync::Arc;

use ringwall_browser::FieldKind;
use ringwall_record::{ApprovalKind, Confirmation, Digest, RiskLevel, SettledStatus};
use ringwall_risk::{Content, Level};
use serde_json::json;

use super::perform::Deed;
use super::request::{ActionRequest, Evaluate, shortened};
use crate::approvals::{Decision, Question, StillStands};
use crate::boxes::browser::Fault;
use crate::settings::Rules;

/// Describes what needs approval; `None` if the action needs none.
pub(super) fn deserves_care(request: &ActionRequest, field: FieldKind) -> Option<String> {
    let assessed = ringwall_risk::assess(Content::Browser, &request.for_assessment().to_string());
    match (request, field) {
        (ActionRequest::Evaluate(_), _) => Some("run a script in the page".to_owned()),
        (ActionRequest::Press(press), _) if !press.types() => None,
        (ActionRequest::Fill(_) | ActionRequest::Press(_), FieldKind::Password | FieldKind::Payment) => {
            Some(format!("type into {field}"))
        }
        (ActionRequest::Select(_), FieldKind::Password | FieldKind::Payment) => Some(format!("choose in {field}")),
        // The agent's selector looks like a password or payment field, even if the page declares an
        // ordinary one.
        (ActionRequest::Fill(_) | ActionRequest::Select(_), _) if assessed.level >= Level::High => {
            Some("type into a field for a password or a payment".to_owned())
        }
        _ => None,
    }
}

impl Deed {
    /// Returns when the action on this page is approved.
    pub(super) async fn confirm(&self, request: &ActionRequest, doing: &str, page: &str) -> Result<(), Fault> {
        let rules = self.service.session_rules(&self.place).await?;
        let question = self.question(request, doing, page, &rules);
        let settled = match rules.confirmation {
            Confirmation::Websocket | Confirmation::Callback => None,
            Confirmation::AutoApprove => Some(SettledStatus::Approved),
            Confirmation::AutoReject => Some(SettledStatus::Denied),
        };
        let mut waiting = match settled {
            None => self.service.ask(question).await?,
            Some(settled) => self.service.ask_nobody(question, settled, rules.confirmation.as_str()).await?,
        };
        tracing::info!(action_id = %self.id, approval = %waiting.id(), "a browser's action waits for its confirmation");
        let decision = waiting.decision().await;
        // The wait for an answer does not count as idle time of the browser.
        self.slot.used();
        let refused = |why: &str| Err(Fault::refused(format!("Refused: {why}")));
        match decision {
            Decision::Approved { modified: Some(_), .. } => {
                refused("a browser's action cannot be changed; deny it, and say what to do instead")
            }
            Decision::Approved { modified: None, .. } => match self.service.session_rules(&self.place).await {
                Ok(now) if now == rules => Ok(()),
                Ok(_) | Err(_) => refused("how its session is treated changed meanwhile; send it again"),
            },
            Decision::Denied { .. } if settled.is_some() => {
                refused("its session rejects what deserves a person's word")
            }
            Decision::Denied { reason: Some(reason), .. } => refused(&format!("a person has denied it: {reason}")),
            Decision::Denied { reason: None, .. } => refused("a person has denied it"),
            Decision::Expired => refused("nobody answered in time"),
            Decision::Cancelled => {
                refused("nobody can answer any more: the server stops, or the question was taken back")
            }
            Decision::Void => refused("how its session is treated changed meanwhile; send it again"),
        }
    }

    fn question(&self, request: &ActionRequest, doing: &str, page: &str, rules: &Rules) -> Question {
        // The target comes last: the agent chooses this text, and it could imitate the rest of the
        // sentence.
        let target = match request.target() {
            Ok(Some(target)) => format!(": {}", shortened(&target.to_string())),
            Ok(None) | Err(_) => String::new(),
        };
        let code = match request {
            ActionRequest::Evaluate(Evaluate { script }) => Some(script.clone()),
            _ => None,
        };
        let action = json!({
            "action_id": self.id, "action": request.verb(), "detail": request.detail(), "page": page,
            "session": self.place.id.as_str(),
        });
        Question {
            kind: ApprovalKind::Risk,
            exec_id: self.id.clone(),
            user_id: self.place.name.user_id.clone(),
            agent_id: self.place.name.agent_id.clone(),
            session_id: self.place.id.to_string(),
            command: format!("Browser at {page}: {doing}{target}"),
            code,
            requested_paths: Vec::new(),
            blocked_paths: Vec::new(),
            risk_level: RiskLevel::High,
            // For scripts the dialog shows the code instead of the command, so the page is repeated
            // here.
            patterns: vec![format!("It would {doing} at {page}.")],
            files: Default::default(),
            digest: Digest::of(action.to_string().as_bytes()),
            asked_by: self.by.author(),
            still_stands: self.rules_stand(rules),
        }
    }

    /// The check that the session's rules have not changed since the question was asked.
    fn rules_stand(&self, rules: &Rules) -> StillStands {
        let parts = Arc::new((self.service.clone(), self.place.clone(), rules.clone()));
        Arc::new(move || {
            let parts = parts.clone();
            Box::pin(async move {
                let (service, place, rules) = parts.as_ref();
                // Rules that cannot be read count as changed.
                service.session_rules(place).await.is_ok_and(|now| now == *rules)
            })
        })
    }
}
