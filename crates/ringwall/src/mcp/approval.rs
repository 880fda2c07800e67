//! A question to a person, put to the one behind the client where that is possible, and told as pending otherwise.
//!
//! Only a client that says it can ask is asked, and only for somebody who may answer; what it brings back is an answer like
//! any other, judged and recorded by the service. In the protocol without sessions the question is a result, and the answer
//! comes with the repeated request; the state that travels along names the exec and the question, opens nothing, and is
//! looked up for whoever repeats the request. An agent is always told that somebody else is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequiredResult, ProtocolVersion, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use serde_json::{Value, json};
use service::{Answer, ApprovalView, Error, ExecId, Service, Verdict};

use super::who::Who;
use crate::message::inert;

/// The name of the question among a result's.
const QUESTION: &str = "approval";
/// A little longer than any question is open.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// How the person behind a client can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// By a request of ours, while theirs waits.
    Request,
    /// By a result that says what is missing.
    Result,
    /// Not at all: others are asked.
    Elsewhere,
}

impl Reach {
    pub(super) fn of(who: &Who, context: &RequestContext<RoleServer>) -> Self {
        let asks = context.client_capabilities().and_then(|can| can.elicitation);
        // A client that says nothing more precise means forms.
        let has_forms = asks.is_some_and(|can| can.form.is_some() || can.url.is_none());
        if !has_forms || !who.may_answer() {
            return Self::Elsewhere;
        }
        match context.protocol_version() {
            Some(version) if version < ProtocolVersion::V_2026_07_28 => Self::Request,
            Some(_) => Self::Result,
            None => Self::Elsewhere,
        }
    }
}

/// What came back from a person.
#[derive(Debug)]
pub(super) enum Said {
    Answer(Answer),
    /// They looked away; the question stays open.
    Nothing,
}

fn said(result: &ElicitResult) -> Said {
    let content = result.content.as_ref();
    let text = |name: &str| content.and_then(|content| content.get(name)).and_then(Value::as_str);
    let verdict = match (&result.action, text("answer")) {
        (ElicitationAction::Accept, Some("once")) => Verdict::Once,
        (ElicitationAction::Accept, Some("remember")) => Verdict::Remember,
        (ElicitationAction::Accept, Some("deny")) | (ElicitationAction::Decline, _) => Verdict::Deny,
        // What is no answer allows nothing.
        _ => return Said::Nothing,
    };
    let reason = text("reason").filter(|reason| !reason.trim().is_empty()).map(str::to_owned);
    Said::Answer(Answer { verdict, reason, modified_code: None })
}

fn question(view: &ApprovalView) -> ElicitRequestParams {
    let mut words =
        format!("The agent {} asks to run, in session {}:\n", inert(view.agent.as_str()), inert(&view.session_id));
    for line in view.code.as_deref().unwrap_or(&view.command).lines() {
        words.push_str(&format!("    {}\n", inert(line)));
    }
    for path in &view.blocked_paths {
        words.push_str(&format!("It names a path that nobody has allowed: {}\n", inert(path)));
    }
    for pattern in &view.patterns {
        words.push_str(&format!("It was noticed: {}\n", inert(pattern)));
    }
    words.push_str(&format!("Risk: {}.", view.risk_level));
    let mut answers = vec!["once"];
    if !view.requested_paths.is_empty() {
        let paths: Vec<String> = view.requested_paths.iter().map(|path| inert(path)).collect();
        words.push_str(&format!(" `remember` allows from now on: {}.", paths.join(", ")));
        answers.push("remember");
    }
    answers.push("deny");
    let schema = json!({
        "type": "object",
        "properties": {
            "answer": { "type": "string", "title": "May it run?", "enum": answers },
            "reason": { "type": "string", "title": "Why (optional)", "maxLength": 2000 },
        },
        "required": ["answer"],
    });
    let requested_schema = serde_json::from_value(schema).unwrap_or_else(|_| ElicitationSchema::new(BTreeMap::new()));
    ElicitRequestParams::FormElicitationParams { meta: None, message: words, requested_schema }
}

/// Asks while the request waits. Nothing where the client cannot be asked after all.
pub(super) async fn ask(context: &RequestContext<RoleServer>, view: &ApprovalView) -> Said {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(question(view)));
    let sent = context.peer.send_request_with_option(request, PeerRequestOptions::with_timeout(PATIENCE)).await;
    let answered = match sent {
        Ok(handle) => handle.await_response().await,
        Err(error) => Err(error),
    };
    match answered {
        Ok(ClientResult::ElicitResult(result)) => said(&result),
        Ok(_) => Said::Nothing,
        Err(error) => {
            tracing::debug!(approval = %view.id, %error, "an MCP client did not ask its person");
            Said::Nothing
        }
    }
}

/// The question as a result: whoever repeats the request with an answer goes on where this stopped.
pub(super) fn result(view: &ApprovalView) -> InputRequiredResult {
    let request = InputRequest::Elicitation(ElicitRequest::new(question(view)));
    let state = format!("{}/{}", view.exec_id, view.id);
    InputRequiredResult::new(Some(BTreeMap::from([(QUESTION.to_owned(), request)])), Some(state))
}

/// What a repeated request brings: which exec it goes on with, which question, and what was said to it.
pub(super) fn resumed(state: &str, responses: Option<&BTreeMap<String, Value>>) -> Option<(ExecId, String, Said)> {
    let (exec_id, approval_id) = state.split_once('/')?;
    let response = responses.and_then(|responses| responses.get(QUESTION)).cloned();
    let result = response.and_then(|response| serde_json::from_value::<ElicitResult>(response).ok());
    let said = result.map_or(Said::Nothing, |result| said(&result));
    Some((exec_id.parse().ok()?, approval_id.to_owned(), said))
}

/// Gives the answer to the service. Somebody else's may have come first, which is no failure.
pub(super) async fn give(service: &Service, who: &Who, approval_id: &str, answer: Answer) -> Result<(), Error> {
    match service.answer_approval(&who.principal, approval_id, answer).await {
        Ok(_) | Err(Error::Conflict { .. } | Error::ApprovalExpired) => Ok(()),
        Err(error) => Err(error),
    }
}
