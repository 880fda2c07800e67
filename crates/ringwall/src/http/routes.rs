//! The route table: method, path, least role and handler of each route. The router is built from
//! this table only, and a test in `openapi` compares it with the published document.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, patch, post, put};

use super::{AppState, openapi, v1};
use crate::http::transport::access::{Access, authorize};
use crate::http::transport::body::refuse_body;
use crate::http::transport::problem::{Problem, is_within};
use crate::http::{
    handlers::{
        approvals, artifacts, audit, browser, console, contexts, events, execs, gc, login, mcp, metrics, networks,
        risk, run, sandbox, session_box, session_files, session_processes, sessions, settings, skills, tickets, tokens,
    },
    ws::{approvals as approval_sockets, terminals},
};

pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    handler: fn() -> MethodRouter<AppState>,
}

const fn route(method: Method, path: &'static str, access: Access, handler: fn() -> MethodRouter<AppState>) -> Route {
    Route { method, path, access, handler }
}

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/healthz", Access::Open, || get(metrics::healthz)),
    route(Method::GET, "/openapi.json", Access::Open, || get(openapi::document)),
    route(Method::GET, "/docs", Access::Open, || get(openapi::page)),
    route(Method::GET, "/", Access::Open, || get(console::home)),
    route(Method::GET, "/login", Access::Open, || get(console::login)),
    route(Method::GET, "/console", Access::Open, || get(console::start)),
    route(Method::GET, "/console/{*path}", Access::Open, || get(console::page)),
    route(Method::GET, "/assets/{*path}", Access::Open, || get(console::asset)),
    route(Method::POST, "/api/login", Access::Open, || post(login::log_in)),
    route(Method::POST, "/api/logout", Access::Agent, || post(login::log_out)),
    route(Method::GET, "/api/me", Access::Agent, || get(login::me)),
    route(Method::GET, "/metrics", Access::Operator, || get(metrics::metrics)),
    route(Method::GET, "/api/overview", Access::User, || get(metrics::overview)),
    route(Method::POST, "/sandbox/execs", Access::Agent, || post(execs::create)),
    route(Method::GET, "/sandbox/execs", Access::Agent, || get(execs::list)),
    route(Method::GET, "/sandbox/execs/{id}", Access::Agent, || get(execs::show)),
    route(Method::DELETE, "/sandbox/execs/{id}", Access::Agent, || delete(execs::cancel)),
    route(Method::GET, "/sandbox/execs/{id}/artifacts", Access::Agent, || get(artifacts::list)),
    route(Method::GET, "/sandbox/execs/{id}/artifacts/{*path}", Access::Agent, || get(artifacts::download)),
    route(Method::GET, "/sandbox/execs/{id}/stdout", Access::Agent, || get(artifacts::stdout)),
    route(Method::GET, "/sandbox/execs/{id}/stderr", Access::Agent, || get(artifacts::stderr)),
    route(Method::GET, "/sandbox/execs/{id}/events", Access::Agent, || get(events::follow)),
    route(Method::GET, "/sandbox/execs/{id}/network", Access::Agent, || get(networks::of_exec)),
    route(Method::GET, "/sandbox/execs/{id}/observation", Access::Agent, || get(artifacts::observation)),
    route(Method::GET, "/sandbox/health", Access::Agent, || get(metrics::health)),
    route(Method::GET, "/skills", Access::Agent, || get(skills::list)),
    route(Method::POST, "/skills/{id}/invoke", Access::Agent, || post(skills::invoke)),
    route(Method::POST, "/v1/skills/{agent}/upload", Access::Agent, || post(v1::skills::upload_own)),
    route(Method::GET, "/v1/skills/{agent}/list", Access::Agent, || get(v1::skills::list_own)),
    route(Method::GET, "/v1/skills/{agent}/layers", Access::Agent, || get(v1::skills::layers)),
    route(Method::DELETE, "/v1/skills/{agent}/delete", Access::Agent, || delete(v1::skills::delete)),
    route(Method::POST, "/v1/skills/{user}/{agent}/upload", Access::Agent, || post(v1::skills::upload)),
    route(Method::GET, "/v1/skills/{user}/{agent}/list", Access::Agent, || get(v1::skills::list)),
    route(Method::GET, "/settings", Access::Operator, || get(settings::show)),
    route(Method::PUT, "/settings", Access::Operator, || put(settings::change)),
    route(Method::GET, "/api/net/hosts", Access::Agent, || get(networks::hosts)),
    route(Method::DELETE, "/api/net/hosts/{id}", Access::User, || delete(networks::forget)),
    route(Method::GET, "/api/sandbox", Access::Agent, || get(sandbox::show)),
    route(Method::PUT, "/api/sandbox", Access::Operator, || put(sandbox::switch)),
    route(Method::POST, "/api/sandbox/paths", Access::Operator, || post(sandbox::add)),
    route(Method::DELETE, "/api/sandbox/paths", Access::User, || delete(sandbox::remove_named)),
    route(Method::PATCH, "/api/sandbox/paths/{*key}", Access::User, || patch(sandbox::change)),
    route(Method::DELETE, "/api/sandbox/paths/{*key}", Access::User, || delete(sandbox::remove)),
    route(Method::POST, "/api/sandbox/execute", Access::Agent, || post(sandbox::execute)),
    route(Method::POST, "/api/gc", Access::Operator, || post(gc::collect)),
    route(Method::GET, "/api/tokens", Access::Operator, || get(tokens::list)),
    route(Method::POST, "/api/tokens", Access::Operator, || post(tokens::create)),
    route(Method::DELETE, "/api/tokens/{id}", Access::Owner, || delete(tokens::revoke)),
    route(Method::POST, "/api/tickets", Access::Agent, || post(tickets::create)),
    route(Method::GET, "/api/approvals", Access::Agent, || get(approvals::list)),
    route(Method::GET, "/api/approvals/{id}", Access::Agent, || get(approvals::show)),
    route(Method::POST, "/api/approvals/{id}", Access::User, || post(approvals::answer)),
    route(Method::GET, "/api/approvals/{id}/preview", Access::User, || get(approvals::preview)),
    route(Method::GET, "/ws/sessions/{id}", Access::Agent, || get(approval_sockets::session)),
    route(Method::GET, "/ws/chat/{id}", Access::Agent, || get(approval_sockets::chat)),
    route(Method::GET, "/ws/approvals", Access::Operator, || get(approval_sockets::all)),
    route(Method::GET, "/ws/approvals/own", Access::User, || get(approval_sockets::own)),
    route(Method::POST, "/mcp", Access::Agent, || post(mcp::post)),
    route(Method::GET, "/mcp", Access::Agent, || get(mcp::open_stream)),
    route(Method::DELETE, "/mcp", Access::Agent, || delete(mcp::end_session)),
    route(Method::POST, "/api/risk", Access::Agent, || post(risk::assess)),
    route(Method::POST, "/api/browser/{session_id}", Access::Agent, || post(browser::act)),
    route(Method::GET, "/api/browser/{session_id}", Access::Agent, || get(browser::show)),
    route(Method::POST, "/api/run", Access::Agent, || post(run::code)),
    route(Method::POST, "/api/sessions", Access::Agent, || post(sessions::create)),
    route(Method::GET, "/api/sessions", Access::Agent, || get(sessions::list)),
    route(Method::GET, "/api/sessions/{id}", Access::Agent, || get(sessions::show)),
    route(Method::PUT, "/api/sessions/{id}", Access::User, || put(sessions::change)),
    route(Method::DELETE, "/api/sessions/{id}", Access::Agent, || delete(sessions::remove)),
    route(Method::POST, "/api/sessions/{id}/exec", Access::Agent, || post(session_box::exec)),
    route(Method::POST, "/api/sessions/{id}/pause", Access::Agent, || post(session_box::pause)),
    route(Method::POST, "/api/sessions/{id}/resume", Access::Agent, || post(session_box::resume)),
    route(Method::POST, "/api/sessions/{id}/processes", Access::Agent, || post(session_processes::begin)),
    route(Method::GET, "/api/sessions/{id}/processes/{pid}/output", Access::Agent, || get(session_processes::output)),
    route(Method::POST, "/api/sessions/{id}/processes/{pid}/stdin", Access::Agent, || post(session_processes::stdin)),
    route(Method::POST, "/api/sessions/{id}/processes/{pid}/signal", Access::Agent, || post(session_processes::signal)),
    route(Method::GET, "/api/sessions/{id}/pty", Access::Agent, || get(terminals::open)),
    route(Method::GET, "/api/sessions/{id}/files", Access::Agent, || get(session_files::list)),
    route(Method::GET, "/api/sessions/{id}/files/{*path}", Access::Agent, || get(session_files::read)),
    route(Method::PUT, "/api/sessions/{id}/files/{*path}", Access::Agent, || put(session_files::write)),
    route(Method::DELETE, "/api/sessions/{id}/files/{*path}", Access::Agent, || delete(session_files::remove)),
    route(Method::GET, "/api/contexts/{session_id}", Access::Agent, || get(contexts::list)),
    route(Method::POST, "/api/contexts/{session_id}/{context_id}/interrupt", Access::Agent, || {
        post(contexts::interrupt)
    }),
    route(Method::POST, "/api/contexts/{session_id}/{context_id}/restart", Access::Agent, || post(contexts::restart)),
    route(Method::DELETE, "/api/contexts/{session_id}/{context_id}", Access::Agent, || delete(contexts::delete)),
    route(Method::GET, "/api/pool", Access::Agent, || get(contexts::pool)),
    route(Method::GET, "/api/audit", Access::Agent, || get(audit::list)),
    route(Method::POST, "/api/audit/verify", Access::Operator, || post(audit::verify)),
    route(Method::GET, "/api/audit/export", Access::Operator, || get(audit::export)),
    route(Method::POST, "/v1/{agent}/execute", Access::Agent, || post(v1::execute::line)),
    route(Method::POST, "/v1/skills/{user}/{agent}/{skill}/execute", Access::Agent, || post(v1::execute::skill)),
    route(Method::POST, "/v1/sandbox/{user}/{agent}/execute", Access::Agent, || post(v1::execute::sandbox)),
    route(Method::POST, "/v1/files/{agent}/upload", Access::Agent, || post(v1::files::upload)),
    route(Method::GET, "/v1/{agent}/files", Access::Agent, || get(v1::files::list)),
    route(Method::GET, "/v1/{agent}/content", Access::Agent, || get(v1::files::content)),
    route(Method::GET, "/v1/{agent}/download", Access::Agent, || get(v1::files::download)),
    route(Method::POST, "/v1/{agent}/write", Access::Agent, || post(v1::files::write)),
    route(Method::POST, "/v1/{agent}/edit", Access::Agent, || post(v1::files::edit)),
    route(Method::DELETE, "/v1/{agent}/delete", Access::Agent, || delete(v1::files::delete)),
    route(Method::GET, "/v1/sandbox/{user}/{agent}/files", Access::Agent, || get(v1::sandbox::files)),
    route(Method::GET, "/v1/sandbox/{user}/{agent}/content", Access::Agent, || get(v1::sandbox::content)),
    route(Method::PUT, "/v1/sandbox/{user}/{agent}/edit", Access::Agent, || put(v1::sandbox::edit)),
    route(Method::GET, "/v1/skills/{user}/{agent}/{skill}/files", Access::Agent, || get(v1::skill_files::list)),
    route(Method::GET, "/v1/skills/{user}/{agent}/{skill}/content", Access::Agent, || get(v1::skill_files::content)),
    route(Method::PUT, "/v1/skills/{user}/{agent}/{skill}/edit", Access::Agent, || put(v1::skill_files::edit)),
];

/// Routes that handle an unexpected body themselves.
const OWN_BODY_RULE: &[&str] = &["/mcp"];

pub(crate) fn build(state: &AppState) -> Router<AppState> {
    ROUTES.iter().fold(Router::new(), |router, route| {
        let mut handler = (route.handler)();
        if !openapi::takes_body(route) && !is_within(route.path, OWN_BODY_RULE) {
            let query: Arc<[String]> = openapi::query_names(route).into();
            handler = handler.route_layer(from_fn_with_state(query, without_body));
        }
        // Added last, so it runs first: an unauthenticated request gets 401 before its body is
        // judged.
        let admission = from_fn_with_state((state.clone(), route.access), authorize);
        router.route(route.path, handler.route_layer(admission))
    })
}

/// Rejects a request with a body on a route that reads none. `query` has the parameters that the
/// hint names.
async fn without_body(State(query): State<Arc<[String]>>, request: Request, next: Next) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    refuse_body(body, &query).await?;
    Ok(next.run(Request::from_parts(parts, Body::empty())).await)
}
