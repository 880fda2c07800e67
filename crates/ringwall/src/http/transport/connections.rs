//! Accepts connections, serves HTTP/1.1 on them and ends them at shutdown.
//!
//! A client that sends its request head slowly, sends nothing, or does not read its response is
//! disconnected by a timeout. When `--max-connections` is reached it is disconnected as soon as
//! another client connects (`connection_limit`, `stalls`).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ringwall_executor::{Acceptor, register};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::guarded_body::guard_body;
use super::stalls::{ClientBody, ClientStream};

/// For the whole head of the first request.
const FIRST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// For the whole head of a later request, and for the silence before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may leave its receive window closed before the kernel ends the connection
/// (`TCP_USER_TIMEOUT`). Otherwise a client without a token could hold a slot for ever by not
/// reading its responses.
const TCP_USER_TIMEOUT_MS: u32 = 30_000;
/// hyper also buffers at most this much of a response, plus one chunk of its body. A client needs
/// no token to send a head, so each of `--max-connections` may use this much memory.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Between a failed accept and the next attempt. New connections wait in the kernel's queue
/// meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long clients may take to read finished responses once the server is stopping.
const LAST_RESPONSES_TIMEOUT: Duration = Duration::from_secs(5);

/// The client's address, and the slot of its connection, which a WebSocket keeps after the upgrade.
#[derive(Debug, Clone)]
pub(crate) struct ClientConnection {
    pub(crate) remote: SocketAddr,
    pub(crate) permit: Arc<ConnectionPermit>,
}

/// The listening socket, registered with the runtime before the first box runs: later the boxes of
/// a rootless server may have used up the epoll watches of its user.
#[derive(Debug)]
pub(crate) struct Listener {
    acceptor: Acceptor,
    address: SocketAddr,
}

impl Listener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let acceptor = Acceptor::new(listener.into_std()?.into()).await?;
        Ok(Self { acceptor, address })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, remote) = self.acceptor.accept().await?;
        let remote = remote.and_then(|remote| remote.try_into().ok()).ok_or(io::ErrorKind::ConnectionAborted)?;
        let stream = register(stream, |stream| TcpStream::from_std(stream.into())).await?;
        Ok((stream, remote))
    }
}

/// Serves until `stop` completes. Then it accepts no new connection, waits until `drained`
/// completes, and gives clients [`LAST_RESPONSES_TIMEOUT`] to read their responses.
pub(crate) async fn serve(
    listener: Listener,
    app: Router,
    max_connections: usize,
    stop: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) {
    let limit = ConnectionLimit::new(max_connections);
    let stopping = watch::Sender::new(false);
    tokio::pin!(stop);
    loop {
        let accepted = async {
            let (stream, remote) = listener.accept().await?;
            Ok::<_, io::Error>((stream, remote, limit.acquire().await))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, remote, permit)) => serve_connection(
                stream,
                ClientConnection { remote, permit: Arc::new(permit) },
                app.clone(),
                stopping.subscribe(),
            ),
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                if is_exhausted(&error) {
                    limit.close_longest_waiting();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    // WebSockets keep their slots after the upgrade and close themselves when the service stops.
    let answered = limit.all_free();
    tokio::pin!(answered, drained);
    tokio::select! {
        () = &mut answered => drained.await,
        () = &mut drained => {
            let _ = tokio::time::timeout(LAST_RESPONSES_TIMEOUT, answered).await;
        }
    }
}

/// True for errors that closing an idle connection can resolve: the process or the machine has no
/// free descriptor (EMFILE, ENFILE), socket memory (ENOBUFS, ENOMEM) or epoll watch (ENOSPC).
fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC))
}

/// Serves one connection in its own task until it ends or loses its slot.
fn serve_connection(stream: TcpStream, client: ClientConnection, app: Router, mut stopping: watch::Receiver<bool>) {
    // With Nagle's algorithm a small response could wait for the client's delayed ACK, about 40 ms.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, TCP_USER_TIMEOUT_MS);
    let app = TowerToHyperService::new(app);
    let permit = Arc::clone(&client.permit);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        let request = request.map(|body| ClientBody::new(body, Arc::clone(&client.permit)));
        let (busy, answer) = (client.permit.begin(), app.call(request));
        async move {
            // The connection has lost its slot: the handler is dropped before its first poll.
            let busy = busy.ok_or(io::ErrorKind::ConnectionAborted)?;
            match answer.await {
                Ok(response) => Ok::<Response<Body>, io::Error>(guard_body(response, busy)),
                Err(never) => match never {},
            }
        }
    });
    let stream = ClientStream::new(stream, Arc::clone(&permit));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::spawn(async move {
        let no_request = async {
            tokio::time::sleep(FIRST_HEAD_TIMEOUT).await;
            if permit.has_requested() {
                std::future::pending::<()>().await;
            }
        };
        tokio::pin!(connection, no_request);
        tokio::select! {
            // An error means that the client disconnected.
            _ = connection.as_mut() => return,
            () = permit.evicted() => return,
            () = no_request => return,
            _ = stopping.wait_for(|is_stopping| *is_stopping) => {}
        }
        // Finishes the response in progress and reads no further request.
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection => {}
            () = permit.evicted() => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_error_of_full_resource_closes_an_idle_connection() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC] {
            assert!(is_exhausted(&errno.into()), "{errno:?}");
        }
    }

    #[test]
    fn accept_error_of_one_connection_closes_no_other() {
        for errno in [Errno::CONNABORTED, Errno::PERM, Errno::PROTO, Errno::NETDOWN, Errno::HOSTUNREACH] {
            assert!(!is_exhausted(&errno.into()), "{errno:?}");
        }
        // The error of `Listener::accept` for a connection without an address.
        assert!(!is_exhausted(&io::ErrorKind::ConnectionAborted.into()));
    }
}
