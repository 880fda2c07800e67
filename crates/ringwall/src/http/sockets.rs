//! `/ws/…`: what people are asked, as it happens, and their answers, over a WebSocket.
//!
//! Whoever connects gets what is open first and then what comes. Nothing here is without a bound: messages are small, an
//! answer that the other end does not take in time ends the socket, and so does silence; whoever falls behind is sent
//! away and sees what is open when they come back. A socket lasts longer than a token may: its holder is looked up again
//! whenever they answer, and now and then. One that was opened by cookie ends with its login.

use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use service::{Following, Gone, HeldLogin, Origin, Principal, Service, Watched};
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use super::Door;
use super::body::Named;
use super::connections::Caller;
use super::long_answers::LongAnswer;
use super::places::Busy;
use super::problem::Problem;
use super::socket_words::{Said, Told, read, tell};

/// Of a message, and of a frame of one.
const LARGEST: usize = 64 << 10;
/// For the other end to take in one message.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two signs of life; the answer to one has to be there before the next.
const PULSE: Duration = Duration::from_secs(20);

type Asked = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

#[utoipa::path(get, path = "/ws/sessions/{id}", tag = "approvals", params(("id" = String, Path, description = "the session")),
    responses((status = 101, description = "a WebSocket: `permission_request`, `permission_resolved`, `error`; takes `permission_response`")))]
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

#[utoipa::path(get, path = "/ws/chat/{id}", tag = "approvals", params(("id" = String, Path, description = "the session")),
    responses((status = 101, description = "the same as `/ws/sessions/{id}`")))]
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
    responses((status = 101, description = "a WebSocket as `/ws/sessions/{id}`, for all sessions of everybody")))]
pub(crate) async fn all(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    asked: Asked,
) -> Result<Response, Problem> {
    open(&door, principal, caller, login, Watched::All, asked)
}

fn open(
    door: &Door,
    principal: Principal,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    watched: Watched,
    asked: Asked,
) -> Result<Response, Problem> {
    let upgrade = asked.map_err(|_| {
        Problem::new(
            StatusCode::UPGRADE_REQUIRED,
            "UPGRADE_REQUIRED",
            "this is a WebSocket, and was asked for as a page",
        )
        .with_hint("connect with a WebSocket client; GET /api/approvals?status=pending lists the same")
    })?;
    let place = Place {
        _long: door.sockets.begin(&principal)?,
        _busy: caller.as_ref().and_then(|Extension(caller)| caller.seat.begin()),
        caller: caller.map(|Extension(caller)| caller),
        login: login.map(|Extension(login)| login),
    };
    let following = door.service.follow_approvals(&principal, watched.clone())?;
    let service = door.service.clone();
    let upgrade = upgrade.max_message_size(LARGEST).max_frame_size(LARGEST);
    Ok(upgrade.on_upgrade(move |socket| Talk { service, principal, watched, place, socket }.run(following)))
}

/// What a socket has as long as it is there.
struct Place {
    _long: LongAnswer,
    _busy: Option<Busy>,
    caller: Option<Caller>,
    /// Of whoever came by cookie: the socket ends with it.
    login: Option<HeldLogin>,
}

struct Talk {
    service: Service,
    principal: Principal,
    watched: Watched,
    place: Place,
    socket: WebSocket,
}

/// Why a socket ends.
enum End {
    /// The other end is gone, or does not take what it is sent.
    Lost,
    Close(u16, &'static str),
}

impl Talk {
    async fn run(mut self, following: Following) {
        if let End::Close(code, reason) = self.talk(following).await {
            let frame = CloseFrame { code, reason: reason.into() };
            // Whoever does not take this either is gone all the same.
            let _ = timeout(PATIENCE, self.socket.send(Message::Close(Some(frame)))).await;
        }
    }

    async fn talk(&mut self, mut following: Following) -> End {
        let mut pulse = interval_at(tokio::time::Instant::now() + PULSE, PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_heard = true;
        let login = self.place.login.take();
        let logged_out = async {
            match login {
                Some(login) => login.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(logged_out);
        loop {
            let step = tokio::select! {
                announcement = following.next() => match announcement {
                    Ok(announcement) => self.send(tell(&announcement)).await,
                    Err(Gone::Behind) => Err(End::Close(close_code::AGAIN, "too far behind; connect again")),
                    Err(Gone::Stopping) => Err(End::Close(close_code::AWAY, "the server stops")),
                },
                message = self.socket.recv() => {
                    is_heard = true;
                    self.hear(message).await
                }
                () = &mut logged_out => Err(End::Close(close_code::POLICY, "the login is over")),
                _ = pulse.tick() => {
                    let was_heard = std::mem::replace(&mut is_heard, false);
                    self.look_after(was_heard).await
                }
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
                self.send(Told::malformed("binary messages mean nothing here").to_json()).await
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Close(_))) | None => Err(End::Lost),
            // It breaks the protocol, or says more at once than it may.
            Some(Err(_)) => Err(End::Close(close_code::SIZE, "the message is too large or malformed")),
        }
    }

    /// Whoever follows is told what became of it, and so is the answerer.
    async fn answer(&mut self, text: &str) -> Result<(), Told> {
        let (id, Said { verdict, reason, modified_code }) = read(text)?;
        let of_request = |error: service::Error| Told::about(&id, &error);
        self.service.authenticate_again(&self.principal).await.map_err(of_request)?;
        let asked = self.service.approval(&self.principal, &id).await.map_err(of_request)?;
        if let Watched::Session(session) = &self.watched
            && asked.session_id != *session
        {
            return Err(Told::foreign(&id));
        }
        let remote = self.place.caller.as_ref().map(|caller| caller.remote);
        let answer = service::Answer { verdict, reason, modified_code, from: Origin { door: "websocket", remote } };
        self.service.answer_approval(&self.principal, &id, answer).await.map(drop).map_err(of_request)
    }

    async fn look_after(&mut self, was_heard: bool) -> Result<(), End> {
        if !was_heard {
            return Err(End::Lost);
        }
        match self.service.authenticate_again(&self.principal).await {
            Err(service::Error::Unauthenticated) => {
                Err(End::Close(close_code::POLICY, "the token is not valid any more"))
            }
            // A record that does not answer just now says nothing about the token.
            Ok(()) | Err(_) => self.pass(Message::Ping(Default::default())).await,
        }
    }

    async fn send(&mut self, message: Value) -> Result<(), End> {
        self.pass(Message::text(message.to_string())).await
    }

    async fn pass(&mut self, message: Message) -> Result<(), End> {
        match timeout(PATIENCE, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Lost),
        }
    }
}
