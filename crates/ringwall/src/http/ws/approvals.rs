//! `/ws/…`: announces approvals over a WebSocket and takes answers.
//!
//! A client first gets the open approvals, then every change. One that falls too far behind is
//! disconnected; when it connects again it gets the approvals that are open then. The token is
//! checked again before each answer.

use axum::extract::ws::{Message, close_code};
use axum::response::Response;
use ringwall_service::{ApprovalStream, ApprovalTopic, Origin, StreamEnd};
use serde_json::Value;

use super::connection::{End, SocketConnection, SocketRequest};
use super::messages::{ClientAnswer, Rejection, announcement_json, parse_answer};
use crate::http::transport::body::PathParam;
use crate::http::transport::problem::Problem;

#[utoipa::path(get, path = "/ws/sessions/{id}", tag = "approvals", params(("id" = String, Path, description = "Session id")),
    responses((status = 101, description = "A WebSocket. The server sends `permission_request`, `permission_resolved` and `error`; the client sends `permission_response`")))]
pub(crate) async fn session(request: SocketRequest, PathParam(id): PathParam<String>) -> Result<Response, Problem> {
    open(request, ApprovalTopic::session(&id)?)
}

#[utoipa::path(get, path = "/ws/chat/{id}", tag = "approvals", params(("id" = String, Path, description = "Session id")),
    responses((status = 101, description = "Alias of `/ws/sessions/{id}`")))]
pub(crate) async fn chat(request: SocketRequest, PathParam(id): PathParam<String>) -> Result<Response, Problem> {
    open(request, ApprovalTopic::session(&id)?)
}

#[utoipa::path(get, path = "/ws/approvals", tag = "approvals",
    responses((status = 101, description = "A WebSocket like `/ws/sessions/{id}`, for the sessions of all users")))]
pub(crate) async fn all(request: SocketRequest) -> Result<Response, Problem> {
    open(request, ApprovalTopic::All)
}

#[utoipa::path(get, path = "/ws/approvals/own", tag = "approvals",
    responses((status = 101, description = "A WebSocket like `/ws/sessions/{id}`, for all sessions that the caller may see")))]
pub(crate) async fn own(request: SocketRequest) -> Result<Response, Problem> {
    open(request, ApprovalTopic::Own)
}

fn open(request: SocketRequest, topic: ApprovalTopic) -> Result<Response, Problem> {
    let remote = request.client.as_ref().map(|client| client.remote);
    let (upgrade, permit, by) = request.accept("GET /api/approvals?status=pending lists the open approvals")?;
    let principal = by.principal.through(Origin { door: "websocket", remote, client: None });
    let mut following = by.service.follow_approvals(&principal, topic.clone())?;
    Ok(upgrade.on_upgrade(async move |socket| {
        let connection = SocketConnection::new(by.service, principal, permit, socket);
        let mut socket = ApprovalSocket { topic, connection };
        let end = socket.run(&mut following).await;
        socket.connection.close(end).await;
    }))
}

struct ApprovalSocket {
    topic: ApprovalTopic,
    connection: SocketConnection,
}

impl ApprovalSocket {
    async fn run(&mut self, following: &mut ApprovalStream) -> End {
        loop {
            let step = tokio::select! {
                announcement = following.next() => match announcement {
                    Ok(announcement) => self.send(announcement_json(&announcement)).await,
                    Err(StreamEnd::Lagged) => Err(End::close(close_code::AGAIN, "too many unread messages; connect again")),
                    Err(StreamEnd::Stopping) => Err(End::close(close_code::AWAY, "the server is stopping")),
                },
                message = self.connection.socket.recv() => {
                    self.connection.watchdog.note_activity();
                    self.receive(message).await
                }
                event = self.connection.watchdog.next() => self.connection.handle(event).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn receive(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        match message {
            Some(Ok(Message::Text(text))) => match self.answer(&text).await {
                Ok(()) => Ok(()),
                Err(rejection) => self.send(rejection.to_json()).await,
            },
            Some(Ok(Message::Binary(_))) => {
                self.send(Rejection::malformed("binary messages are not accepted here").to_json()).await
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Close(_))) | None => Err(End::Lost),
            Some(Err(_)) => Err(End::malformed()),
        }
    }

    /// Records an answer. Success is announced to all followers, including this socket; an error
    /// only to this one.
    async fn answer(&mut self, text: &str) -> Result<(), Rejection> {
        let (id, ClientAnswer { verdict, reason, modified_code }) = parse_answer(text)?;
        let of_request = |error: ringwall_service::Error| Rejection::for_approval(&id, &error);
        self.connection.service.authenticate_again(&self.connection.principal).await.map_err(of_request)?;
        let approval = self.connection.service.approval(&self.connection.principal, &id).await.map_err(of_request)?;
        if let ApprovalTopic::Session(session) = &self.topic
            && approval.session_id != *session
        {
            return Err(Rejection::unknown(&id));
        }
        let answer = ringwall_service::Answer { verdict, reason, modified_code };
        self.connection
            .service
            .answer_approval(&self.connection.principal, &id, answer)
            .await
            .map(drop)
            .map_err(of_request)
    }

    async fn send(&mut self, message: Value) -> Result<(), End> {
        self.connection.send(Message::text(message.to_string())).await
    }
}
