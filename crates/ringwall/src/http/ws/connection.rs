//! The part that all WebSockets share: limits, pings, and how they are closed.
//!
//! Messages have at most 64 KiB. A client that does not read a message within 10 s or does not
//! answer a ping within 20 s is disconnected; one that does not read is disconnected at once if
//! `--max-connections` is reached and another client connects. The token is checked again with
//! every ping, every 20 s. A socket that was opened by cookie ends with its login.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::StatusCode;
use axum::http::request::Parts;
use ringwall_service::{HeldLogin, Principal, Service};
use tokio::time::{Interval, MissedTickBehavior, interval_at, timeout};

use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::caller_limits::{CallerLimit, CallerPermit};
use crate::http::transport::connection_limit::{ActiveRequest, ConnectionPermit};
use crate::http::transport::connections::ClientConnection;
use crate::http::transport::problem::Problem;

/// Limit of a message from the client, and of each of its frames.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// For the client to read one message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two pings. The client must send something, such as the pong, before the next one.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// RFC 6455: a control frame has at most 125 bytes, 2 of them for the close code.
const MAX_REASON_LEN: usize = 123;

/// A request to open a WebSocket, by an authenticated caller.
pub(crate) struct SocketRequest {
    pub(crate) by: Caller,
    pub(crate) client: Option<ClientConnection>,
    login: Option<HeldLogin>,
    handshake: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    sockets: Arc<CallerLimit>,
}

impl FromRequestParts<AppState> for SocketRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        Ok(SocketRequest {
            by: Caller::from_request_parts(parts, state).await?,
            client: parts.extensions.get::<ClientConnection>().cloned(),
            login: parts.extensions.get::<HeldLogin>().cloned(),
            handshake: WebSocketUpgrade::from_request_parts(parts, state).await,
            sockets: Arc::clone(&state.sockets),
        })
    }
}

impl SocketRequest {
    /// Returns the upgrade. An ordinary request is 426, with the hint `otherwise`.
    pub(crate) fn accept(self, otherwise: &str) -> Result<(WebSocketUpgrade, SocketPermit, Caller), Problem> {
        let upgrade = self.handshake.map_err(|_| {
            let message = "this route is a WebSocket, and the request is not a WebSocket handshake";
            Problem::new(StatusCode::UPGRADE_REQUIRED, "UPGRADE_REQUIRED", message)
                .with_hint(format!("connect with a WebSocket client; {otherwise}"))
        })?;
        let permit = SocketPermit {
            _count: self.sockets.acquire(&self.by.principal)?,
            _request: self.client.as_ref().and_then(|client| client.permit.begin()),
            client: self.client,
            login: self.login,
        };
        Ok((upgrade.max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES), permit, self.by))
    }
}

/// The resources of an open socket: its count for the caller, its connection's slot, its login.
pub(crate) struct SocketPermit {
    _count: CallerPermit,
    _request: Option<ActiveRequest>,
    client: Option<ClientConnection>,
    /// The login of a client that authenticated by cookie. The socket ends with it.
    login: Option<HeldLogin>,
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

async fn evicted(permit: Option<&ConnectionPermit>) {
    match permit {
        Some(permit) => permit.evicted().await,
        None => std::future::pending().await,
    }
}

/// An open socket with its principal.
pub(crate) struct SocketConnection {
    pub(crate) service: Service,
    pub(crate) principal: Principal,
    _permit: SocketPermit,
    pub(crate) socket: WebSocket,
    pub(crate) watchdog: Watchdog,
}

/// Reasons other than messages for which a socket may end.
pub(crate) struct Watchdog {
    ping: Interval,
    logged_out: Pin<Box<dyn Future<Output = ()> + Send>>,
    permit: Option<Arc<ConnectionPermit>>,
    is_alive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchdogEvent {
    PingDue,
    LoggedOut,
    /// The connection lost its slot, because the client does not read.
    Evicted,
}

impl Watchdog {
    pub(crate) async fn next(&mut self) -> WatchdogEvent {
        tokio::select! {
            () = &mut self.logged_out => WatchdogEvent::LoggedOut,
            _ = self.ping.tick() => WatchdogEvent::PingDue,
            () = evicted(self.permit.as_deref()) => WatchdogEvent::Evicted,
        }
    }

    /// Call when a message arrived, and at a ping while messages are not read.
    pub(crate) fn note_activity(&mut self) {
        self.is_alive = true;
    }
}

impl SocketConnection {
    pub(crate) fn new(service: Service, principal: Principal, mut permit: SocketPermit, socket: WebSocket) -> Self {
        let mut ping = interval_at(tokio::time::Instant::now() + PING_INTERVAL, PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let login = permit.login.take();
        let logged_out = Box::pin(async {
            match login {
                Some(login) => login.ended().await,
                None => std::future::pending().await,
            }
        });
        let connection_permit = permit.client.as_ref().map(|client| Arc::clone(&client.permit));
        SocketConnection {
            service,
            principal,
            _permit: permit,
            socket,
            watchdog: Watchdog { ping, logged_out, permit: connection_permit, is_alive: true },
        }
    }

    pub(crate) async fn handle(&mut self, event: WatchdogEvent) -> Result<(), End> {
        match event {
            WatchdogEvent::LoggedOut => Err(End::close(close_code::POLICY, "the login has ended")),
            WatchdogEvent::Evicted => Err(End::Lost),
            WatchdogEvent::PingDue if !std::mem::replace(&mut self.watchdog.is_alive, false) => Err(End::Lost),
            WatchdogEvent::PingDue => match self.service.authenticate_again(&self.principal).await {
                Err(ringwall_service::Error::Unauthenticated) => {
                    Err(End::close(close_code::POLICY, "the token is no longer valid"))
                }
                // Another error, such as a database that does not respond, says nothing about the
                // token.
                Ok(()) | Err(_) => self.send(Message::Ping(Default::default())).await,
            },
        }
    }

    pub(crate) async fn send(&mut self, message: Message) -> Result<(), End> {
        let sent = tokio::select! {
            sent = timeout(SEND_TIMEOUT, self.socket.send(message)) => sent,
            () = evicted(self.watchdog.permit.as_deref()) => return Err(End::Lost),
        };
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Lost),
        }
    }

    /// Sends the close frame, then reads until the client closes: closing a TCP connection with
    /// unread data resets it, and the client could lose the last messages.
    pub(crate) async fn close(mut self, end: End) {
        let End::Close(code, reason) = end else { return };
        let frame = CloseFrame { code, reason: reason.into() };
        let closing = async {
            if self.socket.send(Message::Close(Some(frame))).await.is_ok() {
                while let Some(Ok(_)) = self.socket.recv().await {}
            }
        };
        // After the timeout the connection is dropped.
        let _ = timeout(SEND_TIMEOUT, closing).await;
    }
}
