//! `/api/audit`: what was recorded, in pages, as a whole, and whether it still is what was recorded.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use service::{AuditFilter, Entry, Limit, Principal, Scope};
use utoipa::IntoParams;

use super::Door;
use super::body::Words;
use super::execs::{paged, parse};
use super::problem::Problem;
use crate::audit::VerificationReport;

const USUAL_PAGE: u64 = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditWords {
    action: Option<String>,
    subject: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[utoipa::path(get, path = "/api/audit", tag = "audit", params(AuditWords),
    responses((status = 200, description = "newest first; the next page's cursor is in X-Next-Cursor", body = Vec<Entry>)))]
pub(crate) async fn list(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Words(words): Words<AuditWords>,
) -> Result<Response, Problem> {
    // Everything, of what the asker may see.
    let filter = AuditFilter { action: words.action, subject: words.subject, ..AuditFilter::everything(Scope::All) };
    let limit = Limit::nearest(words.limit.unwrap_or(USUAL_PAGE));
    let page = door.service.audit(&principal, filter, limit, parse(words.cursor.as_deref())?).await?;
    Ok(paged(page))
}

#[utoipa::path(post, path = "/api/audit/verify", tag = "audit",
    responses((status = 200, description = "whether the chain holds, and what was found", body = VerificationReport)))]
pub(crate) async fn verify(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<VerificationReport>, Problem> {
    Ok(Json(VerificationReport::from(&door.service.verify_audit(&principal, |_| {}).await?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportWords {
    /// The number of the first entry
    from: Option<i64>,
}

#[utoipa::path(get, path = "/api/audit/export", tag = "audit", params(ExportWords),
    responses((status = 200, description = "all entries, oldest first, as lines of JSON", content_type = "application/x-ndjson", body = String)))]
pub(crate) async fn export(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Words(words): Words<ExportWords>,
) -> Result<Response, Problem> {
    let lines = door.service.export_audit(&principal, words.from.unwrap_or(0))?;
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}
