//! `/api/risk`: assesses code, a shell command or a browser action by static analysis. Nothing is
//! run or stored.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use ringwall_risk::{Assessment, Content, Level, Locale, MAX_CONTENT};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::run::locale;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, JsonResult};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RiskBody {
    /// The text to assess, at most 1 MiB
    content: String,
    /// `python`, `javascript`, `shell` or `browser`
    #[schema(value_type = String)]
    r#type: Content,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RiskView {
    /// `safe`, `low`, `medium`, `high` or `critical`
    #[schema(value_type = String)]
    level: Level,
    /// The most severe finding, as a sentence
    reason: String,
    /// True for the levels `high` and `critical`: running it needs an approval
    requires_confirmation: bool,
    /// True for every level but `safe`: strict mode runs it in a backend that `strict.backends`
    /// names
    requires_isolation: bool,
    /// `native`, `docker`, `gvisor` or `aio`
    suggested_sandbox: &'static str,
    /// All findings, ordered by line
    detected_patterns: Vec<FindingView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FindingView {
    id: &'static str,
    /// Line number, from 1
    line: usize,
    message: &'static str,
}

impl RiskView {
    pub(crate) fn new(assessment: &Assessment, locale: Locale) -> Self {
        let findings = assessment.findings.iter();
        RiskView {
            level: assessment.level,
            reason: assessment.reason(locale),
            requires_confirmation: assessment.requires_confirmation(),
            requires_isolation: assessment.requires_isolation(),
            suggested_sandbox: assessment.suggested_sandbox(),
            detected_patterns: findings
                .map(|one| FindingView { id: one.rule.id, line: one.line, message: one.message(locale) })
                .collect(),
        }
    }
}

#[utoipa::path(post, path = "/api/risk", tag = "risk", request_body = RiskBody,
    params(("accept-language" = Option<String>, Header, description = "`zh` for messages in Chinese")),
    responses((status = 200, description = "Level and findings", body = RiskView)))]
pub(crate) async fn assess(by: Caller, headers: HeaderMap, JsonBody(body): JsonBody<RiskBody>) -> JsonResult<RiskView> {
    let locale = locale(&headers);
    if body.content.len() > MAX_CONTENT {
        let message = format!("content has {} bytes; the limit is {MAX_CONTENT} bytes", body.content.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message));
    }
    Ok(Json(RiskView::new(&by.service.assess(&by.principal, body.r#type, body.content).await?, locale)))
}
