//! Accepts connections, serves HTTP/1.1 on them and ends them at shutdown.
//!
//! A client that sends its request head slowly, sends nothing, or does not read its response is disconnected by a timeout.
//! When `--max-connections` is reached it is disconnected as soon as another client connects (`places`, `stalls`).

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

use super::attended::attend;
use super::places::{Places, Seat};
use super::stalls::{ClientBody, ClientStream};

/// For the whole head of the first request.
const FIRST_HEAD: Duration = Duration::from_secs(5);
/// For the whole head of a later request, and for the silence before it.
const HEAD: Duration = Duration::from_secs(30);
/// For a client to take in what it asked for. The kernel ends a connection whose other end leaves no room for so long;
/// otherwise whoever asks much and reads nothing would hold a place for ever, without any token.
const UNREAD_MS: u32 = 30_000;
/// Most bytes of a request head. hyper also buffers no more than this of a response, plus one chunk of its body. Before
/// the head is complete nobody has shown a token, so the number counts once for each of `--max-connections`.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Between a failed accept and the next, so that a lasting error costs ten attempts a second. The connection waits in the
/// kernel's queue meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long answers that are ready may take to be read once the server stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// Who a request comes from, and the place that their connection has: a socket keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) remote: SocketAddr,
    pub(crate) seat: Arc<Seat>,
}

/// The socket at which connections arrive, registered with the runtime before the first box runs.
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

/// Serves until `stop` is over; then takes no new connection, waits for `drained` and for the answers to be read.
pub(crate) async fn serve(
    listener: Listener,
    app: Router,
    most: usize,
    stop: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) {
    let places = Places::new(most);
    let stopping = watch::Sender::new(false);
    tokio::pin!(stop);
    loop {
        let accepted = async {
            let (stream, remote) = listener.accept().await?;
            Ok::<_, io::Error>((stream, remote, places.take().await))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, remote, seat)) => {
                attend_to(stream, Caller { remote, seat: Arc::new(seat) }, app.clone(), stopping.subscribe())
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                if is_exhausted(&error) {
                    places.close_longest_waiting();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    // Sockets have left their connections, keep their places, and say goodbye by themselves.
    let answered = places.all_free();
    tokio::pin!(answered, drained);
    tokio::select! {
        () = &mut answered => drained.await,
        () = &mut drained => {
            let _ = tokio::time::timeout(FAREWELL, answered).await;
        }
    }
}

/// Whether closing an idle connection helps: the process or the machine has no free descriptor (EMFILE, ENFILE), socket
/// memory (ENOBUFS, ENOMEM) or epoll watch (ENOSPC).
fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC))
}

/// Serves one connection in a task of its own, as long as it has its place.
fn attend_to(stream: TcpStream, caller: Caller, app: Router, mut stopping: watch::Receiver<bool>) {
    // An answer is often one small packet; waiting for more to send with it would cost more than the box.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNREAD_MS);
    let app = TowerToHyperService::new(app);
    let seat = Arc::clone(&caller.seat);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        let request = request.map(|body| ClientBody::new(body, Arc::clone(&caller.seat)));
        let (busy, answer) = (caller.seat.begin(), app.call(request));
        async move {
            // Never half: what is refused here was not looked at.
            let busy = busy.ok_or(io::ErrorKind::ConnectionAborted)?;
            match answer.await {
                Ok(response) => Ok::<Response<Body>, io::Error>(attend(response, busy)),
                Err(never) => match never {},
            }
        }
    });
    let stream = ClientStream::new(stream, Arc::clone(&seat));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::spawn(async move {
        let silent = async {
            tokio::time::sleep(FIRST_HEAD).await;
            if seat.has_asked() {
                std::future::pending::<()>().await;
            }
        };
        tokio::pin!(connection, silent);
        tokio::select! {
            // A client that breaks off is no event of ours.
            _ = connection.as_mut() => return,
            () = seat.lost() => return,
            () = silent => return,
            _ = stopping.wait_for(|is_stopping| *is_stopping) => {}
        }
        // What is being answered is answered to its end, and nothing after it.
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection => {}
            () = seat.lost() => {}
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
        // As `accept` reports a connection without an address.
        assert!(!is_exhausted(&io::ErrorKind::ConnectionAborted.into()));
    }
}
