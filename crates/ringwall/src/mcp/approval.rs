//! A question to a person, put to the one behind the client where that is possible, and told as pending otherwise.
//!
//! Only a client that says it can ask is asked, and only for somebody who may answer; what it brings back is an answer like
//! any other, judged and recorded by the service. In the protocol without sessions the question is a result, and the answer
//! comes with the repeated request; the state that travels along names the exec and the question. It opens nothing, because
//! both are looked up for whoever repeats the request, and it is sealed, so that an answer goes to what was asked and to
//! nothing else. An agent is always told that somebody else is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use ringwall_service::{Answer, ApprovalKind, ApprovalView, Error, ExecId, Service, Verdict};
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequiredResult, ProtocolVersion, RequestStateCodec, SealOptions, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use serde_json::{Value, json};

use super::who::Who;
use crate::cli::message::inert;

/// The name of the question among a result's.
const QUESTION: &str = "approval";
/// A little longer than any question is open.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

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
    /// Nobody was asked: the request was repeated without an answer.
    Unasked,
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
    let (asks, blocked, title) = match view.kind {
        ApprovalKind::Path => ("asks to run", "It names a path that nobody has allowed", "May it run?"),
        ApprovalKind::Risk => ("asks to run", "It would reach", "May it run?"),
        ApprovalKind::Network => {
            ("runs", "It waits to connect to a host that nobody has allowed", "May it connect to this host?")
        }
    };
    let (agent, session) = (inert(view.agent.as_str()), inert(&view.session_id));
    let mut words = format!("The agent {agent} {asks}, in session {session}:\n");
    for line in view.code.as_deref().unwrap_or(&view.command).lines() {
        words.push_str(&format!("    {}\n", inert(line)));
    }
    for path in &view.blocked_paths {
        words.push_str(&format!("{blocked}: {}\n", inert(path)));
    }
    for pattern in &view.patterns {
        words.push_str(&format!("It was noticed: {}\n", inert(pattern)));
    }
    for file in &view.covered_files {
        let (path, kept) = (inert(&file.path), if file.pinned { "pinned" } else { "checked, not pinned" });
        words.push_str(&format!("Covered: {path}, {} bytes, sha256 {}, {kept}\n", file.size, inert(&file.sha256)));
        if let Some(script) = &file.script {
            for line in script.text.lines() {
                words.push_str(&format!("    {}\n", inert(line)));
            }
            if !script.is_whole {
                words.push_str("    (cut here; the rest is covered and not shown)\n");
            }
        }
    }
    for file in &view.not_covered {
        words.push_str(&format!("Not covered: {}: {}\n", inert(&file.path), file.why.message()));
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
            "answer": { "type": "string", "title": title, "enum": answers },
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
    let sent = context.peer.send_request_with_option(request, PeerRequestOptions::with_timeout(TIMEOUT)).await;
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

/// What makes a state known again: by whom it was given, to whom, for which tool.
#[derive(Debug, Clone)]
pub(super) struct Seal(RequestStateCodec);

impl Seal {
    pub(super) fn new(service: &Service) -> Self {
        Self(RequestStateCodec::new_unchecked(service.key_for("MCP request states")))
    }

    fn bound(who: &Who, tool: &str) -> Vec<u8> {
        format!("{}\n{tool}", who.principal.caller()).into_bytes()
    }

    /// The question as a result: whoever repeats the request with an answer goes on where this stopped.
    pub(super) fn result(&self, who: &Who, tool: &str, view: &ApprovalView) -> InputRequiredResult {
        let request = InputRequest::Elicitation(ElicitRequest::new(question(view)));
        let (named, bound) = (format!("{}/{}", view.exec_id, view.id), Self::bound(who, tool));
        let state = self.0.seal_with(named.as_bytes(), &SealOptions::new().associated_data(&bound));
        InputRequiredResult::new(Some(BTreeMap::from([(QUESTION.to_owned(), request)])), Some(state))
    }

    /// Which exec a repeated request goes on with, and which question was asked. Nothing where this was never given, or to
    /// somebody else, or for something else.
    pub(super) fn open(&self, who: &Who, tool: &str, state: &str) -> Option<(ExecId, String)> {
        let named = self.0.open_with(state, &Self::bound(who, tool)).ok()?;
        let (exec_id, approval_id) = std::str::from_utf8(&named).ok()?.split_once('/')?;
        Some((exec_id.parse().ok()?, approval_id.to_owned()))
    }
}

/// What a repeated request brings.
pub(super) fn brought(responses: Option<&BTreeMap<String, Value>>) -> Said {
    let response = responses.and_then(|responses| responses.get(QUESTION)).cloned();
    let result = response.and_then(|response| serde_json::from_value::<ElicitResult>(response).ok());
    result.map_or(Said::Unasked, |result| said(&result))
}

/// Gives the answer to the service. Somebody else's may have come first, which is no failure.
pub(super) async fn give(service: &Service, who: &Who, approval_id: &str, answer: Answer) -> Result<(), Error> {
    match service.answer_approval(&who.principal, approval_id, answer).await {
        Ok(_) | Err(Error::Conflict { .. } | Error::ApprovalExpired) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use ringwall_service::{ApprovalStatus, Timestamp};

    use super::*;

    fn asked(kind: &str, blocked: &[&str]) -> ApprovalView {
        let blocked: Vec<String> = blocked.iter().map(|&text| text.to_owned()).collect();
        let at = Timestamp::from_milliseconds(0);
        ApprovalView {
            id: "a_0000000000000000".parse().expect("an id"),
            kind: kind.parse().expect("a kind"),
            status: ApprovalStatus::Pending,
            session_id: "s".to_owned(),
            exec_id: "e_0000000000000000".parse().expect("an id"),
            user: "u".parse().expect("a user"),
            agent: "a".parse().expect("an agent"),
            description: String::new(),
            command: "curl https://pypi.org".to_owned(),
            code: None,
            requested_paths: blocked.clone(),
            blocked_paths: blocked,
            risk_level: ringwall_record::RiskLevel::High,
            patterns: Vec::new(),
            covered_files: Vec::new(),
            not_covered: Vec::new(),
            created_at: at,
            expires_at: at,
            answered_at: None,
            answered_by: None,
            reason: None,
        }
    }

    fn words(view: &ApprovalView) -> (String, Value) {
        match question(view) {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                (message, serde_json::to_value(requested_schema).expect("a schema"))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_is_asked_about_in_its_own_words() {
        let (path, form) = words(&asked("path", &["/srv/x"]));
        assert!(path.contains("It names a path that nobody has allowed: /srv/x"), "{path}");
        assert_eq!(form["properties"]["answer"]["title"], "May it run?");
        let (network, form) = words(&asked("network", &["pypi.org:443"]));
        assert!(network.contains("connect to a host that nobody has allowed: pypi.org:443"), "{network}");
        assert!(
            !network.contains("path") && network.contains("`remember` allows from now on: pypi.org:443"),
            "{network}"
        );
        assert_eq!(form["properties"]["answer"]["title"], "May it connect to this host?");
        assert_eq!(form["properties"]["answer"]["enum"], json!(["once", "remember", "deny"]));
        let (_, form) = words(&asked("risk", &[]));
        assert_eq!(form["properties"]["answer"]["enum"], json!(["once", "deny"]));
    }

    #[test]
    fn only_an_answer_is_one() {
        let brought = |response: Value| brought(Some(&BTreeMap::from([(QUESTION.to_owned(), response)])));
        let once = brought(json!({ "action": "accept", "content": { "answer": "once" } }));
        assert!(matches!(once, Said::Answer(Answer { verdict: Verdict::Once, .. })), "{once:?}");
        assert!(matches!(brought(json!({ "action": "decline" })), Said::Answer(Answer { verdict: Verdict::Deny, .. })));
        for nothing in [
            json!({ "action": "cancel" }),
            json!({ "action": "accept" }),
            json!({ "action": "accept", "content": { "answer": "yes" } }),
        ] {
            assert!(matches!(brought(nothing.clone()), Said::Nothing), "{nothing}");
        }
        assert!(matches!(brought(json!(1)), Said::Unasked));
        assert!(matches!(super::brought(None), Said::Unasked));
    }
}
