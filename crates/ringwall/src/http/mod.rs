//! The HTTP server: routes and handlers that turn requests into calls of the service. It decides
//! nothing about permissions beyond the least role of a route.
//!
//! A request passes `transport::gate` (request id, host and origin check, log line),
//! `transport::access` (authentication, role, limits per caller) and then one handler. Each handler
//! reads the request, calls one method of the service and writes the response; errors become bodies
//! in `transport::problem` only.

mod handlers;
mod routes;
mod transport;
mod ws;

mod body_memory;

mod openapi;
mod v1;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use ringwall_service::Service;

use crate::http::handlers::mcp::Endpoint;
use crate::http::transport::caller_limits::{CallerLimit, Kind};
pub(crate) use crate::http::transport::connections::{ClientConnection, Listener, serve};
use crate::http::transport::gate;
use crate::http::transport::host_check::Hosts;
pub(crate) use crate::http::ws::messages::announcement_json;

/// The state that every handler gets.
#[derive(Debug, Clone)]
pub(crate) struct AppState {
    service: Service,
    hosts: Arc<Hosts>,
    max_body_bytes: usize,
    requests: Arc<CallerLimit>,
    streams: Arc<CallerLimit>,
    sockets: Arc<CallerLimit>,
    mcp: Arc<Endpoint>,
}

impl AppState {
    pub(crate) fn new(
        service: Service,
        allowed_hosts: &[String],
        listening: SocketAddr,
        max_body_bytes: usize,
        max_connections: usize,
    ) -> Self {
        let hosts = Arc::new(Hosts::new(allowed_hosts, listening));
        let [requests, streams, sockets] =
            [Kind::Requests, Kind::Streams, Kind::Sockets].map(|kind| CallerLimit::new(kind, max_connections));
        let mcp = Arc::new(Endpoint::new(service.clone(), max_body_bytes));
        AppState { service, hosts, max_body_bytes, requests, streams, sockets, mcp }
    }
}

/// The whole HTTP service, without a socket.
pub(crate) fn app(state: AppState) -> Router {
    routes::build(&state)
        .fallback(gate::unknown_path)
        .method_not_allowed_fallback(gate::unknown_method)
        .layer(map_response(gate::harden))
        .layer(from_fn_with_state(Arc::clone(&state.hosts), gate::pass))
        .with_state(state)
}
