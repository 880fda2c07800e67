//! Asks the user of an MCP client for an approval (elicitation), if the client supports it and the
//! principal may answer. Otherwise the tool's result is `approval_pending`; with an agent's token
//! it always is.
//!
//! The service judges and records the answer like any other. Since protocol version 2026-07-28,
//! which has no sessions, the question is a result, and the client repeats its request with the
//! answer and the request state. The state names the exec and the approval. It grants nothing,
//! because the service checks both for the principal of the repeated request. It is sealed for that
//! principal and tool, so an answer cannot be used for another request.

use std::collections::BTreeMap;

use ringwall_service::{Answer, ApprovalKind, ApprovalView, Error, ExecId, Service, Verdict};
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequiredResult, ProtocolVersion, RequestStateCodec, SealOptions, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use rmcp::{Peer, RoleServer, ServiceError};
use serde_json::{Value, json};

use super::caller::Caller;
use crate::message::escape_invisible;

/// The key of the question in `inputRequests` and of the answer in `inputResponses`.
const INPUT_KEY: &str = "approval";

/// How the client's user can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskMethod {
    /// By an elicitation request while the tool call waits.
    Request,
    /// By a result that asks for input; the client repeats its request.
    Result,
    /// Not through this client; the result is `approval_pending`.
    Unavailable,
}

impl AskMethod {
    pub(super) fn of(caller: &Caller, context: &RequestContext<RoleServer>) -> Self {
        let capability = context.client_capabilities().and_then(|can| can.elicitation);
        // An empty elicitation capability means forms.
        let has_forms = capability.is_some_and(|can| can.form.is_some() || can.url.is_none());
        if !has_forms || !caller.may_answer() {
            return Self::Unavailable;
        }
        match context.protocol_version() {
            Some(version) if version < ProtocolVersion::V_2026_07_28 => Self::Request,
            Some(_) => Self::Result,
            None => Self::Unavailable,
        }
    }
}

/// The answer of the client's user.
#[derive(Debug)]
pub(super) enum UserAnswer {
    Answer(Answer),
    /// The client has not asked its user, or the user closed the question without an answer. The
    /// approval stays open.
    None,
    /// The request was repeated without an answer.
    Missing,
}

fn parse_answer(result: &ElicitResult) -> UserAnswer {
    let content = result.content.as_ref();
    let text = |name: &str| content.and_then(|content| content.get(name)).and_then(Value::as_str);
    let verdict = match (&result.action, text("answer")) {
        (ElicitationAction::Accept, Some("once")) => Verdict::Once,
        (ElicitationAction::Accept, Some("remember")) => Verdict::Remember,
        (ElicitationAction::Accept, Some("deny")) | (ElicitationAction::Decline, _) => Verdict::Deny,
        // Also a malformed answer: it must allow nothing.
        _ => return UserAnswer::None,
    };
    let reason = text("reason").filter(|reason| !reason.trim().is_empty()).map(str::to_owned);
    UserAnswer::Answer(Answer { verdict, reason, modified_code: None })
}

fn question(view: &ApprovalView) -> ElicitRequestParams {
    let (action, blocked, title) = match view.kind {
        ApprovalKind::Path => ("wants to run", "It names a path that is not allowed", "Allow it to run?"),
        ApprovalKind::Risk => ("wants to run", "It would access", "Allow it to run?"),
        ApprovalKind::Network => {
            ("is running", "It wants to connect to a host that is not allowed", "Allow it to connect to this host?")
        }
    };
    let (agent, session) = (escape_invisible(view.agent.as_str()), escape_invisible(&view.session_id));
    let mut text = format!("The agent {agent} {action} in session {session}:\n");
    for line in view.code.as_deref().unwrap_or(&view.command).lines() {
        text.push_str(&format!("    {}\n", escape_invisible(line)));
    }
    for path in &view.blocked_paths {
        text.push_str(&format!("{blocked}: {}\n", escape_invisible(path)));
    }
    for pattern in &view.patterns {
        text.push_str(&format!("Finding: {}\n", escape_invisible(pattern)));
    }
    for file in &view.covered_files {
        let (path, kept) = (escape_invisible(&file.path), if file.pinned { "pinned" } else { "checked, not pinned" });
        text.push_str(&format!(
            "Covered file: {path}, {} bytes, sha256 {}, {kept}\n",
            file.size,
            escape_invisible(&file.sha256)
        ));
        if let Some(script) = &file.script {
            for line in script.text.lines() {
                text.push_str(&format!("    {}\n", escape_invisible(line)));
            }
            if !script.is_whole {
                text.push_str("    (truncated; the rest is covered but not shown)\n");
            }
        }
    }
    for file in &view.not_covered {
        text.push_str(&format!("Not covered file: {}: {}\n", escape_invisible(&file.path), file.why.message()));
    }
    text.push_str(&format!("Risk: {}.", view.risk_level));
    let mut answers = vec!["once"];
    if !view.requested_paths.is_empty() {
        let paths: Vec<String> = view.requested_paths.iter().map(|path| escape_invisible(path)).collect();
        text.push_str(&format!(" `remember` also allows in the future: {}.", paths.join(", ")));
        answers.push("remember");
    }
    answers.push("deny");
    let schema = json!({
        "type": "object",
        "properties": {
            "answer": { "type": "string", "title": title, "enum": answers },
            "reason": { "type": "string", "title": "Reason (optional)", "maxLength": 2000 },
        },
        "required": ["answer"],
    });
    let requested_schema = serde_json::from_value(schema).unwrap_or_else(|_| ElicitationSchema::new(BTreeMap::new()));
    ElicitRequestParams::FormElicitationParams { meta: None, message: text, requested_schema }
}

/// Sends an elicitation request while the tool call waits. It has no timeout: the question is valid
/// until `ended` completes, because the approval has ended or the client has cancelled the call. Then
/// the request is cancelled and the result is `None`.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    view: &ApprovalView,
    ended: impl Future<Output = ()>,
) -> Option<UserAnswer> {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(question(view)));
    let answered = match peer.send_request_with_option(request, PeerRequestOptions::no_options()).await {
        Ok(mut handle) => tokio::select! {
            biased;
            () = ended => {
                // Fails if the client has disconnected.
                let _ = handle.cancel(Some("the approval is no longer open".to_owned())).await;
                return None;
            }
            answered = &mut handle.rx => answered.unwrap_or(Err(ServiceError::TransportClosed)),
        },
        Err(error) => Err(error),
    };
    Some(match answered {
        Ok(ClientResult::ElicitResult(result)) => parse_answer(&result),
        Ok(_) => UserAnswer::None,
        Err(error) => {
            tracing::debug!(approval = %view.id, %error, "an MCP client did not ask its user");
            UserAnswer::None
        }
    })
}

/// Seals request states with a key of the server, bound to the principal and the tool.
#[derive(Debug, Clone)]
pub(super) struct Seal(RequestStateCodec);

impl Seal {
    pub(super) fn new(service: &Service) -> Self {
        Self(RequestStateCodec::new_unchecked(service.key_for("MCP request states")))
    }

    fn bound(caller: &Caller, tool: &str) -> Vec<u8> {
        format!("{}\n{tool}", caller.principal.caller()).into_bytes()
    }

    /// The question as a result. The repeated request with the answer resumes the exec.
    pub(super) fn result(&self, caller: &Caller, tool: &str, view: &ApprovalView) -> InputRequiredResult {
        let request = InputRequest::Elicitation(ElicitRequest::new(question(view)));
        let (named, bound) = (format!("{}/{}", view.exec_id, view.id), Self::bound(caller, tool));
        let state = self.0.seal_with(named.as_bytes(), &SealOptions::new().associated_data(&bound));
        InputRequiredResult::new(Some(BTreeMap::from([(INPUT_KEY.to_owned(), request)])), Some(state))
    }

    /// Opens the state of a repeated request: the exec and the approval. `None` if it is not
    /// genuine, or was given to another principal or for another tool.
    pub(super) fn open(&self, caller: &Caller, tool: &str, state: &str) -> Option<(ExecId, String)> {
        let named = self.0.open_with(state, &Self::bound(caller, tool)).ok()?;
        let (exec_id, approval_id) = std::str::from_utf8(&named).ok()?.split_once('/')?;
        Some((exec_id.parse().ok()?, approval_id.to_owned()))
    }
}

/// The answer in a repeated request.
pub(super) fn read_responses(responses: Option<&BTreeMap<String, Value>>) -> UserAnswer {
    let response = responses.and_then(|responses| responses.get(INPUT_KEY)).cloned();
    let result = response.and_then(|response| serde_json::from_value::<ElicitResult>(response).ok());
    result.map_or(UserAnswer::Missing, |result| parse_answer(&result))
}

/// Passes the answer to the service. It is no error if the approval was answered elsewhere first or
/// has expired.
pub(super) async fn submit(service: &Service, caller: &Caller, approval_id: &str, answer: Answer) -> Result<(), Error> {
    match service.answer_approval(&caller.principal, approval_id, answer).await {
        Ok(_) | Err(Error::Conflict { .. } | Error::ApprovalExpired) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringwall_service::{ApprovalStatus, Timestamp};
    use rmcp::service::RunningService;
    use rmcp::transport::async_rw::AsyncRwTransport;
    use rmcp::{ServerHandler, ServiceExt as _};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

    use super::*;

    /// The maximum of `approvals.timeout_s`.
    const LONGEST_APPROVAL: Duration = Duration::from_secs(604_800);

    struct NoTools;

    impl ServerHandler for NoTools {}

    /// An MCP server, and its client's end of the connection after the handshake.
    async fn connect() -> (RunningService<RoleServer, NoTools>, BufReader<DuplexStream>) {
        let (own, other) = tokio::io::duplex(64 << 10);
        let (input, output) = tokio::io::split(own);
        let serving = tokio::spawn(NoTools.serve(AsyncRwTransport::new_server(input, output)));
        let mut client = BufReader::new(other);
        let about = json!({
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "x", "version": "0" },
        });
        write(&mut client, &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about })).await;
        read(&mut client).await;
        write(&mut client, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        (serving.await.unwrap().unwrap(), client)
    }

    async fn write(client: &mut BufReader<DuplexStream>, message: &Value) {
        client.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn read(client: &mut BufReader<DuplexStream>) -> Value {
        let mut line = String::new();
        client.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Tokio's paused clock advances when all tasks are idle, so the waits take no time.
    #[tokio::test(start_paused = true)]
    async fn question_is_valid_as_long_as_its_approval_is_open() {
        let (server, mut client) = connect().await;
        let view = approval("path", &["/srv/x"]);
        let person = async {
            let question = read(&mut client).await;
            tokio::time::sleep(LONGEST_APPROVAL).await;
            let result = json!({ "action": "accept", "content": { "answer": "once" } });
            write(&mut client, &json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).await;
        };
        let (answer, ()) = tokio::join!(ask(server.peer(), &view, std::future::pending()), person);
        assert!(matches!(answer, Some(UserAnswer::Answer(Answer { verdict: Verdict::Once, .. }))), "{answer:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn ended_approval_cancels_its_question() {
        let (server, mut client) = connect().await;
        let view = approval("path", &["/srv/x"]);
        assert!(ask(server.peer(), &view, tokio::time::sleep(LONGEST_APPROVAL)).await.is_none());
        let (question, cancelled) = (read(&mut client).await, read(&mut client).await);
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], question["id"], "{cancelled}");
    }

    fn approval(kind: &str, blocked: &[&str]) -> ApprovalView {
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

    fn message_and_form(view: &ApprovalView) -> (String, Value) {
        match question(view) {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                (message, serde_json::to_value(requested_schema).expect("a schema"))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn question_depends_on_the_kind_of_approval() {
        let (path, form) = message_and_form(&approval("path", &["/srv/x"]));
        assert!(path.contains("It names a path that is not allowed: /srv/x"), "{path}");
        assert_eq!(form["properties"]["answer"]["title"], "Allow it to run?");
        let (network, form) = message_and_form(&approval("network", &["pypi.org:443"]));
        assert!(network.contains("connect to a host that is not allowed: pypi.org:443"), "{network}");
        assert!(
            !network.contains("path") && network.contains("`remember` also allows in the future: pypi.org:443"),
            "{network}"
        );
        assert_eq!(form["properties"]["answer"]["title"], "Allow it to connect to this host?");
        assert_eq!(form["properties"]["answer"]["enum"], json!(["once", "remember", "deny"]));
        let (_, form) = message_and_form(&approval("risk", &[]));
        assert_eq!(form["properties"]["answer"]["enum"], json!(["once", "deny"]));
    }

    #[test]
    fn malformed_answer_allows_nothing() {
        let read_responses =
            |response: Value| read_responses(Some(&BTreeMap::from([(INPUT_KEY.to_owned(), response)])));
        let once = read_responses(json!({ "action": "accept", "content": { "answer": "once" } }));
        assert!(matches!(once, UserAnswer::Answer(Answer { verdict: Verdict::Once, .. })), "{once:?}");
        assert!(matches!(
            read_responses(json!({ "action": "decline" })),
            UserAnswer::Answer(Answer { verdict: Verdict::Deny, .. })
        ));
        for nothing in [
            json!({ "action": "cancel" }),
            json!({ "action": "accept" }),
            json!({ "action": "accept", "content": { "answer": "yes" } }),
        ] {
            assert!(matches!(read_responses(nothing.clone()), UserAnswer::None), "{nothing}");
        }
        assert!(matches!(read_responses(json!(1)), UserAnswer::Missing));
        assert!(matches!(super::read_responses(None), UserAnswer::Missing));
    }
}
