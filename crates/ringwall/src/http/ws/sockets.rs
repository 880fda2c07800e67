//! `/ws/…`: announces approvals over a WebSocket and takes answers.
//!
//! A client first gets the open approvals, then every change. One that falls too far behind is
//! disconnected; when it connects again it gets the approvals that are open then. The token is
//! checked again before each answer.

use axum::extract::ws::{Message, close_code};
use axum::extract::{Extension, State};
use axum::response::Response;
use ringwall_service::{Following, Gone, HeldLogin, Origin, Principal, Watched};
use serde_json::Value;

use super::socket_line::{Asked, End, Line, Place, upgrade};
use super::socket_words::{Said, Told, read, tell};
use crate::http::Door;
use crate::http::transport::body::Named;
use crate::http::transport::connections::Caller;
use crate::http::transport::problem::Problem;

#[utoipa::path(get, path = "/ws/sessions/{id}", tag = "approvals", params(("id" = String, Path, description = "Session id")),
    responses((status = 101, description = "A WebSocket. The server sends `permission_request`, `permission_resolved` and `error`; the client sends `permission_response`")))]
pub(crate) async fn session(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    Named(id): Named<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    open(&door, principal, caller, login, Watched::session(&id)?, asked)
}

#[utoipa::path(get, path = "/ws/chat/{id}", tag = "approvals", params(("id" = String, Path, description = "Session id")),
    responses((status = 101, description = "Alias of `/ws/sessions/{id}`")))]
pub(crate) async fn chat(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    Named(id): Named<String>,
    asked: Asked,
) -> Result<Response, Problem> {
    open(&door, principal, caller, login, Watched::session(&id)?, asked)
}

#[utoipa::path(get, path = "/ws/approvals", tag = "approvals",
    responses((status = 101, description = "A WebSocket like `/ws/sessions/{id}`, for the sessions of all users")))]
pub(crate) async fn all(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    asked: Asked,
) -> Result<Response, Problem> {
    open(&door, principal, caller, login, Watched::All, asked)
}

#[utoipa::path(get, path = "/ws/approvals/own", tag = "approvals",
    responses((status = 101, description = "A WebSocket like `/ws/sessions/{id}`, for all sessions that the caller may see")))]
pub(crate) async fn own(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    asked: Asked,
) -> Result<Response, Problem> {
    open(&door, principal, caller, login, Watched::Own, asked)
}

fn open(
    door: &Door,
    principal: Principal,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    watched: Watched,
    asked: Asked,
) -> Result<Response, Problem> {
    let upgrade = upgrade(asked, "GET /api/approvals?status=pending lists the open approvals")?;
    let remote = caller.as_ref().map(|Extension(caller)| caller.remote);
    let principal = principal.through(Origin { door: "websocket", remote, client: None });
    let place = Place::take(door, &principal, caller, login)?;
    let mut following = door.service.follow_approvals(&principal, watched.clone())?;
    let service = door.service.clone();
    Ok(upgrade.on_upgrade(async move |socket| {
        let mut talk = Talk { watched, line: Line::new(service, principal, place, socket) };
        let end = talk.talk(&mut following).await;
        talk.line.finish(end).await;
    }))
}

struct Talk {
    watched: Watched,
    line: Line,
}

impl Talk {
    async fn talk(&mut self, following: &mut Following) -> End {
        loop {
            let step = tokio::select! {
                announcement = following.next() => match announcement {
                    Ok(announcement) => self.send(tell(&announcement)).await,
                    Err(Gone::Behind) => Err(End::close(close_code::AGAIN, "too many unread messages; connect again")),
                    Err(Gone::Stopping) => Err(End::close(close_code::AWAY, "the server is stopping")),
                },
                message = self.line.socket.recv() => {
                    self.line.watch.heard();
                    self.hear(message).await
                }
                moment = self.line.watch.next() => self.line.attend(moment).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        match message {
            Some(Ok(Message::Text(text))) => match self.answer(&text).await {
                Ok(()) => Ok(()),
                Err(told) => self.send(told.to_json()).await,
            },
            Some(Ok(Message::Binary(_))) => {
                self.send(Told::malformed("binary messages are not accepted here").to_json()).await
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Close(_))) | None => Err(End::Lost),
            Some(Err(_)) => Err(End::malformed()),
        }
    }

    /// Records an answer. Success is announced to all followers, including this socket; an error
    /// only to this one.
    async fn answer(&mut self, text: &str) -> Result<(), Told> {
        let (id, Said { verdict, reason, modified_code }) = read(text)?;
        let of_request = |error: ringwall_service::Error| Told::about(&id, &error);
        self.line.service.authenticate_again(&self.line.principal).await.map_err(of_request)?;
        let asked = self.line.service.approval(&self.line.principal, &id).await.map_err(of_request)?;
        if let Watched::Session(session) = &self.watched
            && asked.session_id != *session
        {
            return Err(Told::foreign(&id));
        }
        let answer = ringwall_service::Answer { verdict, reason, modified_code };
        self.line.service.answer_approval(&self.line.principal, &id, answer).await.map(drop).map_err(of_request)
    }

    async fn send(&mut self, message: Value) -> Result<(), End> {
        self.line.pass(Message::text(message.to_string())).await
    }
}
