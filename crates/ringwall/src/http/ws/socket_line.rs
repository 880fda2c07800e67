//! What all WebSockets have in common: their place in the limits, their pings, and how they end.
//!
//! Everything is bounded: messages are at most 64 KiB; a client that does not read a message within 10 s, or does not answer
//! a ping within 20 s, is disconnected, and at once if `--max-connections` is reached and another client connects. A socket
//! may outlive its token, so the token is checked with every ping. A socket that was opened by cookie ends with its login.

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

/// Of a message, and of a frame of one.
const MAX_BYTES: usize = 64 << 10;
/// For the other end to take in one message.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two signs of life; the answer to one has to be there before the next.
const PULSE: Duration = Duration::from_secs(20);

/// In bytes, by the protocol.
const MAX_REASON_LEN: usize = 123;

pub(crate) type Asked = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// A WebSocket was asked for, and not a page.
pub(crate) fn upgrade(asked: Asked, otherwise: &str) -> Result<WebSocketUpgrade, Problem> {
    let upgrade = asked.map_err(|_| {
        let message = "this is a WebSocket, and was asked for as a page";
        Problem::new(StatusCode::UPGRADE_REQUIRED, "UPGRADE_REQUIRED", message)
            .with_hint(format!("connect with a WebSocket client; {otherwise}"))
    })?;
    Ok(upgrade.max_message_size(MAX_BYTES).max_frame_size(MAX_BYTES))
}

/// What a socket holds.
pub(crate) struct Place {
    _long: LongAnswer,
    _busy: Option<Busy>,
    caller: Option<Caller>,
    /// Of whoever came by cookie: the socket ends with it.
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
    /// The other end is gone, or does not take what it is sent.
    Lost,
    Close(u16, String),
}

impl End {
    /// With as much of the reason as a socket can be closed with.
    pub(crate) fn close(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary(MAX_REASON_LEN));
        End::Close(code, reason)
    }

    /// It breaks the protocol, or says more at once than it may.
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

/// One socket and whose it is.
pub(crate) struct Line {
    pub(crate) service: Service,
    pub(crate) principal: Principal,
    _place: Place,
    pub(crate) socket: WebSocket,
    pub(crate) watch: Watch,
}

/// What ends a socket by itself.
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

    /// A message has come, or none is read just now.
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
            Moment::LoggedOut => Err(End::close(close_code::POLICY, "the login is over")),
            Moment::Evicted => Err(End::Lost),
            Moment::Pulse if !std::mem::replace(&mut self.watch.is_heard, false) => Err(End::Lost),
            Moment::Pulse => match self.service.authenticate_again(&self.principal).await {
                Err(ringwall_service::Error::Unauthenticated) => {
                    Err(End::close(close_code::POLICY, "the token is not valid any more"))
                }
                // A record that does not answer just now says nothing about the token.
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

    /// Says why, where somebody is there to hear it. What they still say is read, so that nothing of what they were told is
    /// lost with it.
    pub(crate) async fn finish(mut self, end: End) {
        let End::Close(code, reason) = end else { return };
        let frame = CloseFrame { code, reason: reason.into() };
        let farewell = async {
            if self.socket.send(Message::Close(Some(frame))).await.is_ok() {
                while let Some(Ok(_)) = self.socket.recv().await {}
            }
        };
        // Whoever does not take this either is gone all the same.
        let _ = timeout(TIMEOUT, farewell).await;
    }
}
