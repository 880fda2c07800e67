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
pub(crate) use crate::http::transport::connections::{Caller, Listener, serve};
use crate::http::transport::host_check::Hosts;
use crate::http::transport::long_answers::LongAnswers;
pub(crate) use crate::http::ws::socket_words::tell as tell_announcement;

/// The state that every handler gets.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    service: Service,
    hosts: Arc<Hosts>,
    largest_body: usize,
    requests: Arc<LongAnswers>,
    long_answers: Arc<LongAnswers>,
    sockets: Arc<LongAnswers>,
    mcp: Arc<Endpoint>,
}

impl Door {
    pub(crate) fn new(
        service: Service,
        allowed_hosts: &[String],
        listening: SocketAddr,
        largest_body: usize,
        places: usize,
    ) -> Self {
        let hosts = Arc::new(Hosts::new(allowed_hosts, listening));
        let requests = LongAnswers::of_requests(places);
        let (long_answers, sockets) = (LongAnswers::of_streams(places), LongAnswers::of_sockets(places));
        let mcp = Arc::new(Endpoint::new(service.clone(), largest_body));
        Door { service, hosts, largest_body, requests, long_answers, sockets, mcp }
    }
}

/// The whole HTTP service, without a socket.
pub(crate) fn app(door: Door) -> Router {
    routes::build(&door)
        .fallback(crate::http::transport::gate::unknown_path)
        .method_not_allowed_fallback(crate::http::transport::gate::unknown_method)
        .layer(map_response(crate::http::transport::gate::harden))
        .layer(from_fn_with_state(Arc::clone(&door.hosts), crate::http::transport::gate::pass))
        .with_state(door)
}
