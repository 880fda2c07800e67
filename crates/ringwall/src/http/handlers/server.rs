//! Operation of the server: readiness, health of the backends, the overview of the last hour,
//! metrics in Prometheus' text format, settings and garbage collection.

use std::fmt::Write as _;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use ringwall_policy::HostView;
use ringwall_service::{Freed, GcMode, Health, Metrics, Overview, SettingsView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, Query, read_json};
use crate::http::transport::problem::Problem;

/// The server is ready if it answers: it accepts connections only after a test box has run.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, description = "The server is ready: it has run a test box", body = Ready)))]
pub(crate) async fn healthz(State(state): State<AppState>) -> Result<Json<Ready>, Problem> {
    let when_disabled = state.service.path_control().await?.when_disabled().map(HostView::key);
    let path_control = if when_disabled.is_none() { "on" } else { "off" };
    Ok(Json(Ready { status: "ok", version: env!("CARGO_PKG_VERSION"), path_control, when_disabled }))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ready {
    status: &'static str,
    version: &'static str,
    /// `on`: commands of sessions reach only the allowed paths of the host. `off`: no approval is
    /// asked for paths, and `when_disabled` says what the commands see of the host
    path_control: &'static str,
    /// Only while path control is off. `readonly`: the host's system directories, `/etc`, `/opt`
    /// and `/srv`, no home directories. `full`: all paths of the host except known secrets
    #[serde(skip_serializing_if = "Option::is_none")]
    when_disabled: Option<&'static str>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HealthQuery {
    /// `1`: runs a command in each available backend
    probe: Option<String>,
}

#[utoipa::path(get, path = "/sandbox/health", tag = "server", params(HealthQuery),
    responses((status = 200, description = "Backends, paths and protections of boxes", body = Health)))]
pub(crate) async fn health(by: Caller, Query(query): Query<HealthQuery>) -> JsonResult<Health> {
    let probe = match query.probe.as_deref() {
        None | Some("0" | "false") => false,
        Some("1" | "true" | "") => true,
        Some(_) => return Err(Problem::invalid("probe: 0 or 1")),
    };
    Ok(Json(by.service.health(&by.principal, probe).await))
}

#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, description = "Metrics in Prometheus' text format", content_type = "text/plain", body = String)))]
pub(crate) async fn metrics(State(state): State<AppState>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, exposition(&state.service.metrics()))
}

#[utoipa::path(get, path = "/api/overview", tag = "server", operation_id = "overview",
    responses((status = 200, description = "The last hour, minute by minute: of all users for owner and operator tokens, of the token's user otherwise", body = Overview)))]
pub(crate) async fn overview(by: Caller) -> Json<Overview> {
    Json(by.service.overview(&by.principal))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct GcQuery {
    /// True: removes nothing and reports what would be removed
    dry_run: Option<bool>,
}

#[utoipa::path(post, path = "/api/gc", tag = "server", operation_id = "collect_garbage", params(GcQuery),
    responses((status = 200, description = "What was removed, or would be with `dry_run`", body = Freed)))]
pub(crate) async fn collect(by: Caller, Query(query): Query<GcQuery>) -> JsonResult<Freed> {
    let mode = if query.dry_run.unwrap_or(false) { GcMode::DryRun } else { GcMode::Remove };
    Ok(Json(by.service.collect_garbage(&by.principal, mode).await?))
}

#[utoipa::path(get, path = "/settings", tag = "settings", operation_id = "show", responses((status = 200, description = "The settings in force", body = SettingsView)))]
pub(crate) async fn settings(by: Caller) -> JsonResult<SettingsView> {
    Ok(Json(by.service.settings(&by.principal).await?))
}

#[utoipa::path(put, path = "/settings", tag = "settings", operation_id = "change", request_body = Object,
    responses((status = 200, description = "The changed settings", body = SettingsView)))]
pub(crate) async fn change_settings(State(state): State<AppState>, by: Caller, body: Body) -> JsonResult<SettingsView> {
    let patch = read_json(body, state.max_body_bytes).await?;
    Ok(Json(by.service.change_settings(&by.principal, patch).await?))
}

fn exposition(metrics: &Metrics) -> String {
    let mut text = String::from(
        "# HELP ringwall_execs_total Ended execs, by status and backend.\n# TYPE ringwall_execs_total counter\n",
    );
    for ((status, backend), count) in &metrics.ended {
        let _ = writeln!(text, "ringwall_execs_total{{status=\"{status}\",backend=\"{}\"}} {count}", plain(backend));
    }
    let gauges = [
        ("ringwall_execs_running", "Running execs.", u64::from(metrics.running)),
        ("ringwall_execs_waiting", "Execs waiting in the queue.", metrics.waiting as u64),
        ("ringwall_spares_idle", "Warm boxes waiting for a command.", metrics.warm_boxes.idle.into()),
        ("ringwall_spares_being_made", "Warm boxes being created.", metrics.warm_boxes.warming.into()),
    ];
    for (name, help, value) in gauges {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    }
    let name = "ringwall_spares_asked_total";
    let _ = write!(text, "# HELP {name} Requests for a warm box, by whether one was ready.\n# TYPE {name} counter\n");
    for (found, count) in [("hit", metrics.warm_boxes.hits), ("miss", metrics.warm_boxes.misses)] {
        let _ = writeln!(text, "{name}{{found=\"{found}\"}} {count}");
    }
    let name = "ringwall_box_set_up_seconds";
    let _ = write!(text, "# HELP {name} Time from the grant to the start of the command.\n# TYPE {name} histogram\n");
    for (milliseconds, count) in &metrics.set_up.at_most {
        let seconds = std::time::Duration::from_millis(*milliseconds).as_secs_f64();
        let _ = writeln!(text, "{name}_bucket{{le=\"{seconds}\"}} {count}");
    }
    let (count, sum) = (metrics.set_up.count, metrics.set_up.sum.as_secs_f64());
    let _ = write!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}\n");
    text
}

/// A label's value without characters that could end it.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringwall_service::Status;

    use super::*;

    #[test]
    fn metrics_are_written_in_prometheus_text_format() {
        let mut metrics = Metrics { running: 2, waiting: 3, ..Metrics::default() };
        metrics.ended.insert((Status::Failed, "nat\"ive\n".to_owned()), 7);
        metrics.set_up.at_most.insert(5, 1);
        (metrics.set_up.count, metrics.set_up.sum) = (2, Duration::from_millis(1500));
        let text = exposition(&metrics);
        for line in [
            "ringwall_execs_total{status=\"FAILED\",backend=\"native\"} 7\n",
            "ringwall_execs_running 2\n",
            "ringwall_execs_waiting 3\n",
            "ringwall_spares_idle 0\n",
            "ringwall_spares_asked_total{found=\"hit\"} 0\n",
            "ringwall_box_set_up_seconds_bucket{le=\"0.005\"} 1\n",
            "ringwall_box_set_up_seconds_bucket{le=\"+Inf\"} 2\n",
            "ringwall_box_set_up_seconds_sum 1.5\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
