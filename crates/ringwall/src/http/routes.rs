//! The route table: method, path, least role and handler of each route. Router and OpenAPI document
//! are built from it. A test in `openapi` compares its paths with those that the handlers describe.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use utoipa::OpenApi;

use super::{AppState, openapi, v1};
use crate::http::transport::access::{Access, authorize};
use crate::http::transport::body::refuse_body;
use crate::http::transport::problem::{Problem, is_within};
use crate::http::{
    handlers::{
        approvals, artifacts, audit, browser, console, contexts, events, execs, login, mcp, risk, run, sandbox, server,
        session_box, session_files, sessions, skills, tickets, tokens,
    },
    ws::{approvals as approval_sockets, terminals},
};

pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    handler: fn() -> MethodRouter<AppState>,
}

/// Builds the route table, and the OpenAPI descriptions of its handlers.
macro_rules! routes {
    ($($method:ident $path:literal $access:ident => $($handler:ident)::+;)*) => {
        pub(crate) const ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            access: Access::$access,
            handler: || on(MethodFilter::$method, $($handler)::+),
        }),*];

        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Ringwall",
                description = "Runs the commands, code, skills and browsers of AI agents in isolated boxes."
            ),
            paths($($($handler)::+),*)
        )]
        pub(super) struct Described;
    };
}

routes! {
    GET "/healthz" Open => server::healthz;
    GET "/openapi.json" Open => openapi::document;
    GET "/docs" Open => openapi::page;
    GET "/" Open => console::home;
    GET "/login" Open => console::login;
    GET "/console" Open => console::start;
    GET "/console/{*path}" Open => console::page;
    GET "/assets/{*path}" Open => console::asset;
    POST "/api/login" Open => login::log_in;
    POST "/api/logout" Agent => login::log_out;
    GET "/api/me" Agent => login::me;
    GET "/metrics" Operator => server::metrics;
    GET "/api/overview" User => server::overview;
    POST "/sandbox/execs" Agent => execs::create;
    GET "/sandbox/execs" Agent => execs::list;
    GET "/sandbox/execs/{id}" Agent => execs::show;
    DELETE "/sandbox/execs/{id}" Agent => execs::cancel;
    GET "/sandbox/execs/{id}/artifacts" Agent => artifacts::list;
    GET "/sandbox/execs/{id}/artifacts/{*path}" Agent => artifacts::download;
    GET "/sandbox/execs/{id}/stdout" Agent => artifacts::stdout;
    GET "/sandbox/execs/{id}/stderr" Agent => artifacts::stderr;
    GET "/sandbox/execs/{id}/events" Agent => events::follow;
    GET "/sandbox/execs/{id}/network" Agent => execs::network;
    GET "/sandbox/execs/{id}/observation" Agent => artifacts::observation;
    GET "/sandbox/health" Agent => server::health;
    GET "/skills" Agent => skills::list;
    POST "/skills/{id}/invoke" Agent => skills::invoke;
    POST "/v1/skills/{agent}/upload" Agent => v1::skills::upload_own;
    GET "/v1/skills/{agent}/list" Agent => v1::skills::list_own;
    GET "/v1/skills/{agent}/layers" Agent => v1::skills::layers;
    DELETE "/v1/skills/{agent}/delete" Agent => v1::skills::delete;
    POST "/v1/skills/{user}/{agent}/upload" Agent => v1::skills::upload;
    GET "/v1/skills/{user}/{agent}/list" Agent => v1::skills::list;
    GET "/settings" Operator => server::settings;
    PUT "/settings" Operator => server::change_settings;
    GET "/api/net/hosts" Agent => sandbox::hosts;
    DELETE "/api/net/hosts/{id}" User => sandbox::forget_host;
    GET "/api/sandbox" Agent => sandbox::show;
    PUT "/api/sandbox" Operator => sandbox::switch;
    POST "/api/sandbox/paths" Operator => sandbox::add;
    DELETE "/api/sandbox/paths" User => sandbox::remove_named;
    PATCH "/api/sandbox/paths/{*key}" User => sandbox::change;
    DELETE "/api/sandbox/paths/{*key}" User => sandbox::remove;
    POST "/api/sandbox/execute" Agent => sandbox::execute;
    POST "/api/gc" Operator => server::collect;
    GET "/api/tokens" Operator => tokens::list;
    POST "/api/tokens" Operator => tokens::create;
    DELETE "/api/tokens/{id}" Owner => tokens::revoke;
    POST "/api/tickets" Agent => tickets::create;
    GET "/api/approvals" Agent => approvals::list;
    GET "/api/approvals/{id}" Agent => approvals::show;
    POST "/api/approvals/{id}" User => approvals::answer;
    GET "/api/approvals/{id}/preview" User => approvals::preview;
    GET "/ws/sessions/{id}" Agent => approval_sockets::session;
    GET "/ws/chat/{id}" Agent => approval_sockets::chat;
    GET "/ws/approvals" Operator => approval_sockets::all;
    GET "/ws/approvals/own" User => approval_sockets::own;
    POST "/mcp" Agent => mcp::post;
    GET "/mcp" Agent => mcp::open_stream;
    DELETE "/mcp" Agent => mcp::end_session;
    POST "/api/risk" Agent => risk::assess;
    POST "/api/browser/{session_id}" Agent => browser::act;
    GET "/api/browser/{session_id}" Agent => browser::show;
    POST "/api/run" Agent => run::code;
    POST "/api/sessions" Agent => sessions::create;
    GET "/api/sessions" Agent => sessions::list;
    GET "/api/sessions/{id}" Agent => sessions::show;
    PUT "/api/sessions/{id}" User => sessions::change;
    DELETE "/api/sessions/{id}" Agent => sessions::remove;
    POST "/api/sessions/{id}/exec" Agent => session_box::exec;
    POST "/api/sessions/{id}/pause" Agent => session_box::pause;
    POST "/api/sessions/{id}/resume" Agent => session_box::resume;
    POST "/api/sessions/{id}/processes" Agent => session_box::begin;
    GET "/api/sessions/{id}/processes/{pid}/output" Agent => session_box::output;
    POST "/api/sessions/{id}/processes/{pid}/stdin" Agent => session_box::stdin;
    POST "/api/sessions/{id}/processes/{pid}/signal" Agent => session_box::signal;
    GET "/api/sessions/{id}/pty" Agent => terminals::open;
    GET "/api/sessions/{id}/files" Agent => session_files::list;
    GET "/api/sessions/{id}/files/{*path}" Agent => session_files::read;
    PUT "/api/sessions/{id}/files/{*path}" Agent => session_files::write;
    DELETE "/api/sessions/{id}/files/{*path}" Agent => session_files::remove;
    GET "/api/contexts/{session_id}" Agent => contexts::list;
    POST "/api/contexts/{session_id}/{context_id}/interrupt" Agent => contexts::interrupt;
    POST "/api/contexts/{session_id}/{context_id}/restart" Agent => contexts::restart;
    DELETE "/api/contexts/{session_id}/{context_id}" Agent => contexts::delete;
    GET "/api/pool" Agent => contexts::pool;
    GET "/api/audit" Agent => audit::list;
    POST "/api/audit/verify" Operator => audit::verify;
    GET "/api/audit/export" Operator => audit::export;
    POST "/v1/{agent}/execute" Agent => v1::execute::line;
    POST "/v1/skills/{user}/{agent}/{skill}/execute" Agent => v1::execute::skill;
    POST "/v1/sandbox/{user}/{agent}/execute" Agent => v1::execute::sandbox;
    POST "/v1/files/{agent}/upload" Agent => v1::files::upload;
    GET "/v1/{agent}/files" Agent => v1::files::list;
    GET "/v1/{agent}/content" Agent => v1::files::content;
    GET "/v1/{agent}/download" Agent => v1::files::download;
    POST "/v1/{agent}/write" Agent => v1::files::write;
    POST "/v1/{agent}/edit" Agent => v1::files::edit;
    DELETE "/v1/{agent}/delete" Agent => v1::files::delete;
    GET "/v1/sandbox/{user}/{agent}/files" Agent => v1::ranges::files;
    GET "/v1/sandbox/{user}/{agent}/content" Agent => v1::ranges::content;
    PUT "/v1/sandbox/{user}/{agent}/edit" Agent => v1::ranges::edit;
    GET "/v1/skills/{user}/{agent}/{skill}/files" Agent => v1::ranges::skill_files;
    GET "/v1/skills/{user}/{agent}/{skill}/content" Agent => v1::ranges::skill_content;
    PUT "/v1/skills/{user}/{agent}/{skill}/edit" Agent => v1::ranges::edit_skill;
}

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
