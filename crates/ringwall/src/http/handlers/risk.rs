//! `/api/risk`: what a piece of code, a line of shell or a browser's action could do. It is advice, and nothing is run or kept.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use ringwall_policy::{Assessment, Content, Level, Locale, MAX_CONTENT};
use ringwall_service::Principal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::run::locale;
use crate::http::Door;
use crate::http::transport::body::{read_json, shape};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RiskBody {
    /// At most 1 MiB
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
    /// The gravest finding, in a sentence
    reason: String,
    /// Whether a person is asked before it runs
    requires_confirmation: bool,
    /// Whether the strict mode demands one of the boxes that it names
    requires_isolation: bool,
    /// `native`, `docker`, `gvisor` or `aio`
    suggested_sandbox: &'static str,
    /// By line
    detected_patterns: Vec<FindingView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FindingView {
    id: &'static str,
    /// From 1
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
    params(("accept-language" = Option<String>, Header, description = "`zh` for sentences in Chinese")),
    responses((status = 200, description = "what it could do, and where it says so", body = RiskView)))]
pub(crate) async fn assess(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<RiskView>, Problem> {
    let locale = locale(&headers);
    let body: RiskBody = shape(read_json(body, door.largest_body).await?)?;
    if body.content.len() > MAX_CONTENT {
        let message = format!("content is {} bytes long, but at most {MAX_CONTENT} are judged", body.content.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message));
    }
    Ok(Json(RiskView::new(&door.service.assess(&principal, body.r#type, body.content).await?, locale)))
}
