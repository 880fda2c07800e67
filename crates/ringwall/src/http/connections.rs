//! Connections: how many there are at once, how long each may take to say something, and how all of them end.
//!
//! A client that sends its headers slowly, says nothing, or does not read its answers, is cut off; so whoever holds all
//! places at once has to keep working for it. Whoever comes when all places are taken waits in the kernel's queue.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// For the whole head of a request, and for the silence between two requests.
const HEAD: Duration = Duration::from_secs(30);
/// For a client to take in what it asked for. The kernel ends a connection whose other end leaves no room for so long;
/// otherwise whoever asks much and reads nothing would hold a place for ever, without any token.
const UNREAD_MS: u32 = 30_000;
/// When there is no descriptor left to accept with, trying again at once would only burn the processor.
const BREATH: Duration = Duration::from_millis(100);
/// How long answers that are ready may take to be read once the server stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves until `stop` is over; then takes no new connection, waits for `drained` and for the answers to be read.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    most: usize,
    stop: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(most));
    let open = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = open.watch(connection(stream, app.clone()));
                tokio::spawn(async move {
                    // A client that breaks off is no event of ours.
                    let _ = connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
    drop(listener);
    let answered = open.shutdown();
    tokio::pin!(answered, drained);
    tokio::select! {
        () = &mut answered => drained.await,
        () = &mut drained => {
            let _ = tokio::time::timeout(FAREWELL, answered).await;
        }
    }
}

fn connection(stream: TcpStream, app: Router) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    // An answer is often one small packet; waiting for more to send with it would cost more than the box.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNREAD_MS);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app))
}
