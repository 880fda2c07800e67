//! Accepts connections of a box, a bounded number at a time, and ends all of them with the box.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use ringwall_policy::NetList;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::connect::{ConnectError, connect};
use super::forward::{AnyBody, forward, text};
use super::gate::{ConnectionRecord, Gate, Ruling};
use super::meter::Metered;
use super::resolve::Resolver;
use super::target::{Form, Target};
use crate::counters::{Acceptor, register};

/// Concurrent connections per box. Further ones wait.
const MAX_CONNECTIONS: usize = 32;
/// Time for a client to send its request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection without traffic is closed after this time.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
const MAX_HEAD: usize = 64 * 1024;
/// Pause after a failed accept, usually for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The proxy of one box.
#[derive(Debug)]
pub struct Proxy {
    gate: Arc<dyn Gate>,
    resolver: Resolver,
    lifted: NetList,
}

/// A tunnel to be served after its client got the answer.
struct Tunnel {
    client: OnUpgrade,
    stream: Metered,
    record: ConnectionRecord,
}

impl Proxy {
    /// `lifted` names hosts that may resolve to any address, for tests and intranets. They must be
    /// allowed as well.
    pub fn new(gate: Arc<dyn Gate>, resolver: Resolver, lifted: NetList) -> Self {
        Self { gate, resolver, lifted }
    }

    /// Serves the box's listening socket until `shutdown` resolves. On return all connections are
    /// closed and recorded.
    pub async fn serve(self, proxy_socket: OwnedFd, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
        let listener = Acceptor::new(proxy_socket).await?;
        let this = Arc::new(self);
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut clients = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let accepted = async {
                let permit = permits.clone().acquire_owned().await;
                (listener.accept().await, permit)
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(_) = clients.join_next() => {}
                (accepted, permit) = accepted => match accepted {
                    Ok((client, _)) => {
                        let this = this.clone();
                        // Registered in the task, because this loop drops its futures when another
                        // client ends.
                        clients.spawn(async move {
                            if let Ok(client) = register(client, |client| TcpStream::from_std(client.into())).await {
                                this.serve_client(client).await;
                            }
                            drop(permit);
                        });
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(listener);
        clients.shutdown().await;
        Ok(())
    }

    /// Serves one client connection: any number of requests, or one tunnel.
    async fn serve_client(self: Arc<Self>, client: TcpStream) {
        let requested_tunnel: Arc<Mutex<Option<Tunnel>>> = Arc::default();
        let answer = service_fn(|request| {
            let (this, requested_tunnel) = (self.clone(), requested_tunnel.clone());
            async move { Ok::<_, Infallible>(this.answer(request, &requested_tunnel).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(client), answer)
            .with_upgrades()
            .await;
        let tunnel = requested_tunnel.lock().take();
        if let (Ok(()), Some(tunnel)) = (served, tunnel) {
            tunnel.copy().await;
        }
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        requested_tunnel: &Mutex<Option<Tunnel>>,
    ) -> Response<AnyBody> {
        let gate = self.gate.current().unwrap_or_else(|| self.gate.clone());
        let target = match Target::read(&request) {
            Ok(target) => target,
            Err(invalid) => {
                if !invalid.host.is_empty() {
                    ConnectionRecord::begin(gate, invalid.host, invalid.port).refused(&invalid.why);
                }
                return text(StatusCode::BAD_REQUEST, &invalid.why);
            }
        };
        let mut record = ConnectionRecord::begin(gate.clone(), target.host.to_string(), target.port);
        // The host is decided before it is looked up, because a DNS query would leak data from the
        // box.
        let rule = match gate.judge(target.host.clone(), target.port).await {
            Ruling::Allowed(rule) => rule,
            Ruling::Refused(why) => {
                record.refused(&why);
                return text(StatusCode::FORBIDDEN, &format!("{}:{}: {why}", target.host, target.port));
            }
        };
        let (stream, address) = match connect(&target.host, target.port, &self.resolver, &self.lifted).await {
            Ok(connected) => connected,
            Err(ConnectError::Refused(why)) => {
                record.refused(&why);
                return text(StatusCode::FORBIDDEN, &why);
            }
            Err(ConnectError::Failed(why)) => {
                record.failed(&why);
                return text(StatusCode::BAD_GATEWAY, &why);
            }
        };
        record.allowed(address, rule);
        let stream = Metered::new(stream, record.meter.clone());
        match target.form {
            Form::Absolute => forward(request, &target, stream, record).await,
            Form::Tunnel => {
                let client = hyper::upgrade::on(&mut request);
                let tunnel = Tunnel { client, stream, record };
                *requested_tunnel.lock() = Some(tunnel);
                Response::new(AnyBody::default())
            }
        }
    }
}

impl Tunnel {
    async fn copy(self) {
        let Tunnel { client, mut stream, record } = self;
        let Ok(client) = client.await else { return };
        let mut client: TokioIo<Upgraded> = TokioIo::new(client);
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut stream) => {}
            () = record.meter.idle(IDLE_TIMEOUT) => {}
        }
    }
}
