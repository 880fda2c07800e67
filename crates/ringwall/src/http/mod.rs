//! The HTTP door: requests in, calls of the service, answers out. It decides nothing.
//!
//! Every request passes the gate (its id, the host and origin check, the log), then, by the table of routes, the question
//! who is asking, then one handler. Reading order: what arrives (`connections`, `places`, `stalls`, `gate`, `host_check`), who may
//! (`routes`, `access`, `cookie`), how much one caller may have open (`attended`, `long_answers`), what requests bring and how problems are
//! told (`body`, `rest`, `json`, `range`, `problem`), how files are sent (`file_answer`, `archive_answer`), then one file per family.

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

/// What every handler has.
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

/// The whole door, without a socket.
pub(crate) fn app(door: Door) -> Router {
    routes::build(&door)
        .fallback(crate::http::transport::gate::unknown_path)
        .method_not_allowed_fallback(crate::http::transport::gate::unknown_method)
        .layer(map_response(crate::http::transport::gate::harden))
        .layer(from_fn_with_state(Arc::clone(&door.hosts), crate::http::transport::gate::pass))
        .with_state(door)
}
