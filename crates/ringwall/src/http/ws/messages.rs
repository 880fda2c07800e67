//! The messages of approval sockets: announcements and errors to the client, answers from it.

use ringwall_service::{Announcement, ApprovalStatus, ApprovalView, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::handlers::approvals::verdict;
use crate::http::transport::json;

const MALFORMED: &str = "INVALID_MESSAGE";

pub(crate) fn announcement_json(announcement: &Announcement) -> Value {
    match announcement {
        Announcement::Opened(view) => {
            let mut message = common_fields("permission_request", view);
            let more = json!({
                "kind": view.kind,
                "user": view.user,
                "agent": view.agent,
                "description": view.description,
                "command": view.command,
                "code": view.code,
                "requestedPath": view.requested_paths.first(),
                "requestedPaths": view.requested_paths,
                "blocked_paths": view.blocked_paths,
                "risk_level": view.risk_level,
                "patterns": view.patterns,
                "covered_files": view.covered_files,
                "not_covered": view.not_covered,
                "created_at": view.created_at,
                "expires_at": view.expires_at,
            });
            if let (Value::Object(message), Value::Object(more)) = (&mut message, more) {
                message.extend(more);
            }
            message
        }
        Announcement::Resolved(view) => {
            let mut message = common_fields("permission_resolved", view);
            message["status"] = json!(view.status);
            message["approved"] = matches!(view.status, ApprovalStatus::Approved | ApprovalStatus::Remembered).into();
            message["remember"] = (view.status == ApprovalStatus::Remembered).into();
            message["answered_by"] = json!(view.answered_by);
            message["reason"] = json!(view.reason);
            message
        }
    }
}

/// The fields of every announcement. The id is sent as `requestId` and as `request_id`.
fn common_fields(kind: &str, view: &ApprovalView) -> Value {
    json!({
        "type": kind,
        "requestId": view.id,
        "request_id": view.id,
        "session_id": view.session_id,
        "exec_id": view.exec_id,
    })
}

/// The error message for a client whose message was rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    code: &'static str,
    message: String,
    id: Option<String>,
}

impl Rejection {
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Rejection { code: MALFORMED, message: message.into(), id: None }
    }

    pub(crate) fn for_approval(id: &str, error: &ringwall_service::Error) -> Self {
        Rejection { code: error.code(), message: error.to_string(), id: Some(id.to_owned()) }
    }

    /// An approval of another session does not exist for this socket.
    pub(crate) fn unknown(id: &str) -> Self {
        Rejection { code: "NOT_FOUND", message: format!("there is no approval {id}"), id: Some(id.to_owned()) }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut message = json!({ "type": "error", "code": self.code, "message": self.message });
        if let Some(id) = &self.id {
            message["requestId"] = json!(id);
            message["request_id"] = json!(id);
        }
        message
    }
}

#[derive(Debug, Deserialize)]
struct Response {
    #[serde(rename = "requestId")]
    first: Option<String>,
    #[serde(rename = "request_id")]
    second: Option<String>,
    approved: bool,
    #[serde(default)]
    remember: bool,
    reason: Option<String>,
    modified_code: Option<String>,
}

/// A client's answer to an approval.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientAnswer {
    pub(crate) verdict: Verdict,
    pub(crate) reason: Option<String>,
    pub(crate) modified_code: Option<String>,
}

/// Parses a `permission_response`. Returns the approval's id and the answer.
pub(crate) fn parse_answer(text: &str) -> Result<(String, ClientAnswer), Rejection> {
    let value = json::read(text.as_bytes())
        .map_err(|error| Rejection::malformed(format!("the message is not JSON: {error}")))?;
    if value["type"] != "permission_response" {
        return Err(Rejection::malformed("type: the only accepted message is permission_response"));
    }
    let response: Response =
        serde_json::from_value(value).map_err(|error| Rejection::malformed(format!("permission_response: {error}")))?;
    let id = match (response.first, response.second) {
        (Some(first), Some(second)) if first != second => {
            return Err(Rejection::malformed("requestId and request_id differ"));
        }
        (Some(id), _) | (None, Some(id)) => id,
        (None, None) => return Err(Rejection::malformed("requestId is missing")),
    };
    let verdict = verdict(response.approved, response.remember);
    Ok((id, ClientAnswer { verdict, reason: response.reason, modified_code: response.modified_code }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_read_with_either_spelling_of_the_id() {
        for name in ["requestId", "request_id"] {
            let answer =
                |rest: &str| parse_answer(&format!(r#"{{"type":"permission_response","{name}":"a",{rest}}}"#)).unwrap();
            let expected = |verdict, reason: Option<&str>, code: Option<&str>| {
                let [reason, modified_code] = [reason, code].map(|text| text.map(str::to_owned));
                ("a".to_owned(), ClientAnswer { verdict, reason, modified_code })
            };
            assert_eq!(answer(r#""approved":true"#), expected(Verdict::Once, None, None));
            assert_eq!(answer(r#""approved":true,"remember":true"#), expected(Verdict::Remember, None, None));
            let denied = answer(r#""approved":false,"remember":true,"reason":"no""#);
            assert_eq!(denied, expected(Verdict::Deny, Some("no"), None));
            let changed = answer(r#""approved":true,"modified_code":"print(1)""#);
            assert_eq!(changed, expected(Verdict::Once, None, Some("print(1)")));
        }
    }

    #[test]
    fn malformed_answer_is_rejected() {
        for bad in [
            "",
            "{",
            "[]",
            "1",
            r#"{"type":"permission_request"}"#,
            r#"{"type":"permission_response"}"#,
            r#"{"type":"permission_response","requestId":"a"}"#,
            r#"{"type":"permission_response","approved":true}"#,
            r#"{"type":"permission_response","requestId":"a","approved":"yes"}"#,
            r#"{"type":"permission_response","requestId":1,"approved":true}"#,
            r#"{"type":"permission_response","requestId":"a","request_id":"b","approved":true}"#,
            r#"{"type":"permission_response","requestId":"a","approved":false,"approved":true}"#,
        ] {
            let rejection = parse_answer(bad).unwrap_err().to_json();
            assert_eq!((&rejection["type"], &rejection["code"]), (&json!("error"), &json!(MALFORMED)), "{bad}");
            assert!(rejection["message"].is_string());
        }
    }
}
