//! `/api/audit`: lists, exports and verifies the audit chain.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use ringwall_service::{AuditFilter, Digest, Entry, Scope, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::execs::{page_limit, parse};
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, Query};
use crate::http::transport::problem::Problem;
use crate::views::{VerificationReport, parse_head};

const DEFAULT_PAGE: u64 = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Id of a token, or name of a part of the server
    actor: Option<String>,
    /// Name of an action, for example `exec.intent`
    action: Option<String>,
    /// Id of the object that the action concerns
    subject: Option<String>,
    /// Entries about this exec and about its approvals
    exec_id: Option<String>,
    /// Entries about this approval and about the entries that its answer remembered
    request_id: Option<String>,
    /// Page size, at least 1; default 100
    limit: Option<u64>,
    /// `next_cursor` of the previous page
    cursor: Option<String>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    /// Newest first
    entries: Vec<EntryView>,
    /// Send it as `cursor` to get the next page; null on the last page
    next_cursor: Option<String>,
}

/// One entry of the audit chain
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct EntryView {
    seq: i64,
    at: Timestamp,
    /// Id of the token that acted, or name of a part of the server
    actor: String,
    action: String,
    subject: String,
    /// The exec that the entry concerns
    exec_id: Option<String>,
    /// The approval that the entry concerns
    request_id: Option<String>,
    user_id: Option<String>,
    agent_id: Option<String>,
    #[schema(value_type = Object)]
    details: Value,
    digest: Option<Digest>,
    previous: Digest,
    hash: Digest,
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        // A database that was tampered with may hold invalid JSON, which is shown as text.
        let details: Value = serde_json::from_str(&entry.detail).unwrap_or(Value::String(entry.detail));
        let concerned = |noun: &str, key: &str| match entry.action.split_once('.') {
            Some((of, _)) if of == noun => Some(entry.subject.clone()),
            _ => details.get(key).and_then(Value::as_str).map(str::to_owned),
        };
        Self {
            exec_id: concerned("exec", "exec_id"),
            request_id: concerned("approval", "request_id"),
            seq: entry.seq,
            at: entry.at,
            actor: entry.actor,
            action: entry.action,
            subject: entry.subject,
            user_id: entry.user_id,
            agent_id: entry.agent_id,
            details,
            digest: entry.digest,
            previous: entry.previous,
            hash: entry.hash,
        }
    }
}

#[utoipa::path(get, path = "/api/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "The entries that the caller may see, newest first", body = AuditPage)))]
pub(crate) async fn list(by: Caller, Query(query): Query<AuditQuery>) -> JsonResult<AuditPage> {
    // A malformed approval id matches no entry.
    let Ok(request_id) = query.request_id.map(|id| id.parse()).transpose() else {
        return Ok(Json(AuditPage::default()));
    };
    // The service restricts the scope to the entries that the caller may see.
    let filter = AuditFilter {
        scope: Scope::All,
        actor: query.actor,
        action: query.action,
        subject: query.subject,
        exec_id: query.exec_id,
        request_id,
    };
    let limit = page_limit(query.limit, DEFAULT_PAGE)?;
    let page = by.service.audit(&by.principal, filter, limit, parse(query.cursor.as_deref())?).await?;
    let entries = page.items.into_iter().map(EntryView::from).collect();
    Ok(Json(AuditPage { entries, next_cursor: page.next.map(|next| next.to_string()) }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct VerifyQuery {
    /// A head that was stored outside of the server, as `SEQ:HASH`. The chain must contain it
    head: Option<String>,
}

#[utoipa::path(post, path = "/api/audit/verify", tag = "audit", params(VerifyQuery),
    responses((status = 200, description = "Result of the verification, with all findings", body = VerificationReport)))]
pub(crate) async fn verify(by: Caller, Query(query): Query<VerifyQuery>) -> JsonResult<VerificationReport> {
    let head = query.head.as_deref().map(parse_head).transpose();
    let head = head.map_err(|error| Problem::invalid(format!("head: {error}")))?;
    Ok(Json(VerificationReport::from(&by.service.verify_audit(&by.principal, head, |_| {}).await?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportQuery {
    /// `seq` of the first entry; default 0
    from: Option<i64>,
}

#[utoipa::path(get, path = "/api/audit/export", tag = "audit", params(ExportQuery),
    responses((status = 200, description = "All entries, oldest first, one JSON object per line", content_type = "application/x-ndjson", body = String)))]
pub(crate) async fn export(by: Caller, Query(query): Query<ExportQuery>) -> Result<Response, Problem> {
    let lines = by.service.export_audit(&by.principal, query.from.unwrap_or(0))?;
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}
