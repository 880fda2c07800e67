//! The part that all WebSockets share: limits, pings, and how they are closed.
//!
//! Messages have at most 64 KiB. A client that does not read a message within 10 s or does not
//! answer a ping within 20 s is disconnected; one that does not read is disconnected at once if
//! `--max-connections` is reached and another client connects. The token is checked again with
//! every ping, every 20 s. A socket that was opened by cookie ends with its login.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Extension;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use ringwall_service::{HeldLogin, Principal, Service};
use tokio::time::{Interval, MissedTickBehavior, interval_at, timeout};

use crate::http::Door;
use crate::http::transport::connections::Caller;
use crate::http::transport::long_answers::LongAnswer;
use crate::http::transport::places::{Busy, Seat};
use crate::http::transport::problem::Problem;

/// Limit of a message from the client, and of each of its frames.
const MAX_BYTES: usize = 64 << 10;
/// For the client to read one message.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two pings. The client must send something, such as the pong, before the next one.
const PULSE: Duration = Duration::from_secs(20);

/// RFC 6455: a control frame has at most 125 bytes, 2 of them for the close code.
const MAX_REASON_LEN: usize = 123;

pub(crate) type Asked = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// Returns the upgrade, or 426 if the request is an ordinary one.
pub(crate) fn upgrade(asked: Asked, otherwise: &str) -> Result<WebSocketUpgrade, Problem> {
    let upgrade = asked.map_err(|_| {
        let message = "this route is a WebSocket, and the request is not a WebSocket handshake";
        Problem::new(StatusCode::UPGRADE_REQUIRED, "UPGRADE_REQUIRED", message)
            .with_hint(format!("connect with a WebSocket client; {otherwise}"))
    })?;
    Ok(upgrade.max_message_size(MAX_BYTES).max_frame_size(MAX_BYTES))
}

/// What an open socket occupies: its count for the caller, its connection's slot, its login.
pub(crate) struct Place {
    _long: LongAnswer,
    _busy: Option<Busy>,
    caller: Option<Caller>,
    /// The login of a client that authenticated by cookie. The socket ends with it.
    login: Option<HeldLogin>,
}

impl Place {
    pub(crate) fn take(
        door: &Door,
        principal: &Principal,
        caller: Option<Extension<Caller>>,
        login: Option<Extension<HeldLogin>>,
    ) -> Result<Self, Problem> {
        Ok(Place {
            _long: door.sockets.begin(principal)?,
            _busy: caller.as_ref().and_then(|Extension(caller)| caller.seat.begin()),
            caller: caller.map(|Extension(caller)| caller),
            login: login.map(|Extension(login)| login),
        })
    }
}

/// Why a socket ends.
pub(crate) enum End {
    /// The client has disconnected or does not read.
    Lost,
    Close(u16, String),
}

impl End {
    /// Closes with `reason`, cut to the length that a close frame can hold.
    pub(crate) fn close(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary(MAX_REASON_LEN));
        End::Close(code, reason)
    }

    /// The client violated the protocol or the size limit.
    pub(crate) fn malformed() -> Self {
        Self::close(close_code::SIZE, "the message is too large or malformed")
    }
}

async fn evicted(seat: Option<&Seat>) {
    match seat {
        Some(seat) => seat.lost().await,
        None => std::future::pending().await,
    }
}

/// An open socket with its principal.
pub(crate) struct Line {
    pub(crate) service: Service,
    pub(crate) principal: Principal,
    _place: Place,
    pub(crate) socket: WebSocket,
    pub(crate) watch: Watch,
}

/// Reasons other than messages for which a socket may end.
pub(crate) struct Watch {
    pulse: Interval,
    logged_out: Pin<Box<dyn Future<Output = ()> + Send>>,
    seat: Option<Arc<Seat>>,
    is_heard: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Pulse,
    LoggedOut,
    /// The connection lost its slot, because the client does not read.
    Evicted,
}

impl Watch {
    pub(crate) async fn next(&mut self) -> Moment {
        tokio::select! {
            () = &mut self.logged_out => Moment::LoggedOut,
            _ = self.pulse.tick() => Moment::Pulse,
            () = evicted(self.seat.as_deref()) => Moment::Evicted,
        }
    }

    /// Call when a message arrived, and at a ping while messages are not read.
    pub(crate) fn heard(&mut self) {
        self.is_heard = true;
    }
}

impl Line {
    pub(crate) fn new(service: Service, principal: Principal, mut place: Place, socket: WebSocket) -> Self {
        let mut pulse = interval_at(tokio::time::Instant::now() + PULSE, PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let login = place.login.take();
        let logged_out = Box::pin(async {
            match login {
                Some(login) => login.ended().await,
                None => std::future::pending().await,
            }
        });
        let seat = place.caller.as_ref().map(|caller| Arc::clone(&caller.seat));
        Line { service, principal, _place: place, socket, watch: Watch { pulse, logged_out, seat, is_heard: true } }
    }

    pub(crate) async fn attend(&mut self, moment: Moment) -> Result<(), End> {
        match moment {
            Moment::LoggedOut => Err(End::close(close_code::POLICY, "the login has ended")),
            Moment::Evicted => Err(End::Lost),
            Moment::Pulse if !std::mem::replace(&mut self.watch.is_heard, false) => Err(End::Lost),
            Moment::Pulse => match self.service.authenticate_again(&self.principal).await {
                Err(ringwall_service::Error::Unauthenticated) => {
                    Err(End::close(close_code::POLICY, "the token is no longer valid"))
                }
                // Another error, such as a database that does not respond, says nothing about the
                // token.
                Ok(()) | Err(_) => self.pass(Message::Ping(Default::default())).await,
            },
        }
    }

    pub(crate) async fn pass(&mut self, message: Message) -> Result<(), End> {
        let sent = tokio::select! {
            sent = timeout(TIMEOUT, self.socket.send(message)) => sent,
            () = evicted(self.watch.seat.as_deref()) => return Err(End::Lost),
        };
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Lost),
        }
    }

    /// Sends the close frame, then reads until the client closes: closing a TCP connection with
    /// unread data resets it, and the client could lose the last messages.
    pub(crate) async fn finish(mut self, end: End) {
        let End::Close(code, reason) = end else { return };
        let frame = CloseFrame { code, reason: reason.into() };
        let farewell = async {
            if self.socket.send(Message::Close(Some(frame))).await.is_ok() {
                while let Some(Ok(_)) = self.socket.recv().await {}
            }
        };
        // After the timeout the connection is dropped.
        let _ = timeout(TIMEOUT, farewell).await;
    }
}
