//! An answer that is no success: one mapping from the service's errors to HTTP, and one place where it becomes a body.
//!
//! Handlers give back a `Problem`; its body is written by [`tell`] alone, which knows the form of the route's family and
//! the request's id. Routes of execs say `{"detail":{…}}`, those of agents' files and skills `{"status":"error","data":message}`, those of
//! allowed paths `{"error":message}`, browsers their own answer, our own `{"error":{…}}`. A message never holds a physical path, a token or the value of a variable: the service's errors have none.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_service::ProblemKind;
use serde_json::{Map, Value, json};

/// Families of routes whose errors have the contract's form.
pub(crate) const DETAILED: &[&str] = &["/sandbox", "/skills", "/settings"];
/// Families whose errors are a message alone.
pub(crate) const WORDED: &[&str] = &["/api/sandbox"];
/// Families whose errors look like their answers.
pub(crate) const ANSWERED: &[&str] = &["/api/browser"];
/// Families whose answers are envelopes, errors too.
pub(crate) const ENVELOPED: &[&str] = &["/v1"];

#[derive(Debug, Clone)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    /// What a program can use beside the words: the field, what was asked, what is allowed.
    facts: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Problem { status, code, message: message.into(), hint: None, facts: Map::new() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }

    /// In the words of the routes of sessions and their code.
    pub(crate) fn of_session(error: ringwall_service::Error) -> Self {
        let code = match &error {
            ringwall_service::Error::BackendUnavailable { .. } => Some("backend_unavailable"),
            ringwall_service::Error::Agent(problem) if problem.kind == ProblemKind::Security => Some("PathTraversal"),
            _ => None,
        };
        let problem = Problem::from(error);
        Problem { code: code.unwrap_or(problem.code), ..problem }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), value.into());
        self
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// An envelope's error is its message alone, and no answer there says that the server is at fault: it is busy.
    fn enveloped(mut self) -> Self {
        if self.status.is_server_error() {
            self.status = StatusCode::SERVICE_UNAVAILABLE;
        }
        if let Some(hint) = self.hint.take() {
            self.message = format!("{}; {hint}", self.message);
        }
        self
    }

    fn body(self, path: &str, request_id: &str) -> Value {
        if is_within(path, ENVELOPED) {
            return json!({ "status": "error", "data": self.message });
        }
        if is_within(path, ANSWERED) {
            let hint = self.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            let error = format!("{}{hint}", self.message);
            return json!({ "success": false, "data": null, "error": error, "screenshot": null });
        }
        if is_within(path, WORDED) {
            let hint = self.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            return json!({ "error": format!("{}{hint}", self.message) });
        }
        let mut object = self.facts;
        object.insert("code".into(), self.code.into());
        object.insert("message".into(), self.message.into());
        if let Some(hint) = self.hint {
            object.insert("hint".into(), hint.into());
        }
        if is_within(path, DETAILED) {
            return json!({ "detail": object });
        }
        object.insert("request_id".into(), request_id.into());
        json!({ "error": object })
    }
}

/// Whether a path is one of these or lies beneath one.
pub(crate) fn is_within(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Carried to [`tell`] in the response itself.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of a problem, in the form of its route.
pub(crate) fn tell(mut response: Response, path: &str, request_id: &str) -> Response {
    let Some(mut problem) = response.extensions_mut().remove::<Problem>() else { return response };
    if is_within(path, ENVELOPED) {
        problem = problem.enveloped();
        *response.status_mut() = problem.status;
    }
    let status = problem.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.remove(header::CONTENT_LENGTH);
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    *response.body_mut() = Body::from(problem.body(path, request_id).to_string());
    response
}

impl From<ringwall_service::Error> for Problem {
    fn from(error: ringwall_service::Error) -> Self {
        use ringwall_service::Error as Of;
        let status = match &error {
            Of::Unauthenticated => StatusCode::UNAUTHORIZED,
            Of::Forbidden { .. } | Of::Denied { .. } => StatusCode::FORBIDDEN,
            Of::NotFound { .. } => StatusCode::NOT_FOUND,
            Of::InvalidArgument { .. } | Of::InvalidInput { .. } => StatusCode::BAD_REQUEST,
            Of::Conflict { .. } | Of::SetAtStart { .. } | Of::LastOwner | Of::AlreadyEnded(_) => StatusCode::CONFLICT,
            Of::ApprovalExpired => StatusCode::GONE,
            Of::QueueFull
            | Of::TooManyActions
            | Of::TooManyApprovals
            | Of::TooManyAssessments { .. }
            | Of::TooManyTickets => StatusCode::TOO_MANY_REQUESTS,
            Of::DiskQuota { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Of::BackendUnavailable { .. } | Of::PoolFull { .. } | Of::Stopping | Of::Busy(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Of::Agent(problem) => match problem.kind {
                ProblemKind::Invalid => StatusCode::BAD_REQUEST,
                ProblemKind::Security => StatusCode::FORBIDDEN,
                ProblemKind::Missing => StatusCode::NOT_FOUND,
                ProblemKind::Timeout => StatusCode::REQUEST_TIMEOUT,
                ProblemKind::Mismatch => StatusCode::CONFLICT,
                ProblemKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                ProblemKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            },
            Of::InvalidManifest { .. } | Of::Runtime { .. } | Of::Start { .. } | Of::DataInUse => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        let mut problem = Problem::new(status, error.code(), error.to_string());
        problem.hint = error.hint();
        match error {
            Of::InvalidInput { field, .. } => problem.with_fact("field", field),
            Of::InvalidManifest { reasons, .. } => problem.with_fact("reasons", reasons),
            Of::Denied { denial, exec_id } => {
                let facts = [
                    ("exec_id", Some(Value::from(exec_id.as_str()))),
                    ("field", denial.field.map(|field| field.key().into())),
                    ("asked", denial.asked.map(Value::from)),
                    ("allowed", denial.allowed.map(Value::from)),
                    ("layer", denial.layer.map(|layer| layer.to_string().into())),
                ];
                for (name, value) in facts {
                    if let Some(value) = value {
                        problem.facts.insert(name.to_owned(), value);
                    }
                }
                problem
            }
            _ => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_form() {
        let problem = || Problem::invalid("no").with_hint("yes").with_fact("field", "pids");
        let detail =
            json!({ "detail": { "code": "INVALID_ARGUMENT", "message": "no", "hint": "yes", "field": "pids" } });
        for path in ["/sandbox", "/sandbox/execs", "/skills/x/invoke", "/settings"] {
            assert_eq!(problem().body(path, "r"), detail, "{path}");
        }
        for path in ["/api/sandbox", "/api/sandbox/paths/x"] {
            assert_eq!(problem().body(path, "r"), json!({ "error": "no; yes" }), "{path}");
        }
        for path in ["/", "/api/tokens", "/sandboxes", "/settingsx"] {
            assert_eq!(problem().body(path, "r")["error"]["request_id"], "r", "{path}");
        }
    }

    #[tokio::test]
    async fn an_envelope_has_a_message_and_no_fault_of_ours() {
        for (status, told) in [(400, 400), (401, 401), (404, 404), (500, 503), (503, 503)] {
            let problem = Problem::new(StatusCode::from_u16(status).unwrap(), "X", "no").with_hint("yes");
            let response = tell(problem.into_response(), "/v1/a/files", "r");
            assert_eq!(response.status().as_u16(), told);
            let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), json!({"status": "error", "data": "no; yes"}));
        }
    }
}
