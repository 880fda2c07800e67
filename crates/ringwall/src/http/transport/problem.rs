//! Error responses: the mapping from service errors to HTTP status codes, and the error body of
//! each route family.
//!
//! Handlers return a [`Problem`]; `gate` calls [`write_error_body`], which writes the body in the
//! form of the route:
//!
//! - `/sandbox`, `/skills`, `/settings`: `{"detail":{"code","message",…}}`
//! - `/v1`: `{"status":"error","data":message}`
//! - `/api/sandbox`: `{"error":message}`
//! - `/api/browser`: the fields of a browser answer, with `error` set
//! - all others: `{"error":{"code","message","request_id",…}}`
//!
//! Messages contain no host path of the data directory, no token and no value of an environment
//! variable, because the service's errors contain none.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_service::ProblemKind;
use serde_json::{Map, Value, json};

/// Routes whose errors are `{"detail":{…}}`.
pub(crate) const DETAIL_ROUTES: &[&str] = &["/sandbox", "/skills", "/settings"];
/// Routes whose errors are `{"error":message}`.
pub(crate) const MESSAGE_ROUTES: &[&str] = &["/api/sandbox"];
/// Routes whose errors have the fields of a browser answer.
pub(crate) const BROWSER_ROUTES: &[&str] = &["/api/browser"];
/// Routes whose responses are all in an envelope `{"status","data"}`.
pub(crate) const ENVELOPE_ROUTES: &[&str] = &["/v1"];

#[derive(Debug, Clone)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    /// Machine-readable details, such as `field`, `asked` and `allowed`.
    details: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Problem { status, code, message: message.into(), hint: None, details: Map::new() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }

    /// Converts an error with the codes that the routes of sessions, code and browsers use.
    pub(crate) fn from_session_error(error: ringwall_service::Error) -> Self {
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

    pub(crate) fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    /// The message with the hint after a semicolon, for bodies without a field for the hint.
    fn message_and_hint(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("{}{hint}", self.message)
    }

    fn body(self, path: &str, request_id: &str) -> Value {
        if is_within(path, ENVELOPE_ROUTES) {
            return json!({ "status": "error", "data": self.message_and_hint() });
        }
        if is_within(path, BROWSER_ROUTES) {
            return json!({
                "success": false, "data": null, "error": self.message_and_hint(), "screenshot": null,
            });
        }
        if is_within(path, MESSAGE_ROUTES) {
            return json!({ "error": self.message_and_hint() });
        }
        let mut object = self.details;
        object.insert("code".into(), self.code.into());
        object.insert("message".into(), self.message.into());
        if let Some(hint) = self.hint {
            object.insert("hint".into(), hint.into());
        }
        if is_within(path, DETAIL_ROUTES) {
            return json!({ "detail": object });
        }
        object.insert("request_id".into(), request_id.into());
        json!({ "error": object })
    }
}

/// True if the path equals one of the prefixes or lies beneath one.
pub(crate) fn is_within(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Leaves the body empty and puts the problem into the response's extensions for
/// [`write_error_body`].
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of a problem in the form of its route. Other responses are unchanged.
pub(crate) fn write_error_body(mut response: Response, path: &str, request_id: &str) -> Response {
    let Some(mut problem) = response.extensions_mut().remove::<Problem>() else { return response };
    // The `/v1` contract allows no other 5xx.
    if is_within(path, ENVELOPE_ROUTES) && problem.status.is_server_error() {
        problem.status = StatusCode::SERVICE_UNAVAILABLE;
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
            Of::InvalidInput { field, .. } => problem.with_detail("field", field),
            Of::InvalidManifest { reasons, .. } => problem.with_detail("reasons", reasons),
            Of::Denied { denial, exec_id } => {
                let details = [
                    ("exec_id", Some(Value::from(exec_id.as_str()))),
                    ("field", denial.field.map(|field| field.key().into())),
                    ("asked", denial.requested.map(Value::from)),
                    ("allowed", denial.allowed.map(Value::from)),
                    ("layer", denial.layer.map(|layer| layer.to_string().into())),
                ];
                let known = details.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
                problem.details.extend(known);
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
    fn error_body_depends_on_the_route() {
        let problem = || Problem::invalid("no").with_hint("yes").with_detail("field", "pids");
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
    async fn envelope_turns_server_errors_into_503() {
        for (status, sent) in [(400, 400), (401, 401), (404, 404), (500, 503), (503, 503)] {
            let problem = Problem::new(StatusCode::from_u16(status).unwrap(), "X", "no").with_hint("yes");
            let response = write_error_body(problem.into_response(), "/v1/a/files", "r");
            assert_eq!(response.status().as_u16(), sent);
            let body = axum::body::to_bytes(response.into_body(), 1000).await.unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), json!({"status": "error", "data": "no; yes"}));
        }
    }
}
