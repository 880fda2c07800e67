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

use super::connect::{Missed, connect};
use super::forward::{AnyBody, forward, words};
use super::gate::{Gate, Noted, Ruling};
use super::meter::Metered;
use super::resolve::Resolver;
use super::target::{Form, Target};
use crate::counters::{Acceptor, register};

/// Concurrent connections per box. Further ones wait.
const AT_ONCE: usize = 32;
/// Time for a client to send its request head.
const ASKED_WITHIN: Duration = Duration::from_secs(30);
/// A connection without traffic is closed after this time.
pub(super) const IDLE: Duration = Duration::from_secs(300);
const MAX_HEAD: usize = 64 * 1024;
/// Pause after a failed accept, usually for lack of descriptors.
const MOMENT: Duration = Duration::from_millis(50);

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
    noted: Noted,
}

impl Proxy {
    /// `lifted` names hosts that may resolve to any address, for tests and intranets. They must be
    /// allowed as well.
    pub fn new(gate: Arc<dyn Gate>, resolver: Resolver, lifted: NetList) -> Self {
        Self { gate, resolver, lifted }
    }

    /// Serves the box's listening socket until `over` resolves. On return all connections are
    /// closed and recorded.
    pub async fn serve(self, proxy_socket: OwnedFd, over: impl Future<Output = ()>) -> std::io::Result<()> {
        let listener = Acceptor::new(proxy_socket).await?;
        let this = Arc::new(self);
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut clients = JoinSet::new();
        tokio::pin!(over);
        loop {
            let accepted = async {
                let place = places.clone().acquire_owned().await;
                (listener.accept().await, place)
            };
            tokio::select! {
                biased;
                () = &mut over => break,
                Some(_) = clients.join_next() => {}
                (accepted, place) = accepted => match accepted {
                    Ok((client, _)) => {
                        let this = this.clone();
                        // Registered in the task, because this loop drops its futures when another
                        // client ends.
                        clients.spawn(async move {
                            if let Ok(client) = register(client, |client| TcpStream::from_std(client.into())).await {
                                this.converse(client).await;
                            }
                            drop(place);
                        });
                    }
                    Err(_) => tokio::time::sleep(MOMENT).await,
                },
            }
        }
        drop(listener);
        clients.shutdown().await;
        Ok(())
    }

    /// Serves one client connection: any number of requests, or one tunnel.
    async fn converse(self: Arc<Self>, client: TcpStream) {
        let arranged: Arc<Mutex<Option<Tunnel>>> = Arc::default();
        let answer = service_fn(|request| {
            let (this, arranged) = (self.clone(), arranged.clone());
            async move { Ok::<_, Infallible>(this.answer(request, &arranged).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(ASKED_WITHIN)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(client), answer)
            .with_upgrades()
            .await;
        let tunnel = arranged.lock().take();
        if let (Ok(()), Some(tunnel)) = (served, tunnel) {
            tunnel.carry().await;
        }
    }

    async fn answer(&self, mut request: Request<Incoming>, arranged: &Mutex<Option<Tunnel>>) -> Response<AnyBody> {
        let gate = self.gate.on_duty().unwrap_or_else(|| self.gate.clone());
        let target = match Target::read(&request) {
            Ok(target) => target,
            Err(unreadable) => {
                if !unreadable.host.is_empty() {
                    Noted::begin(gate, unreadable.host, unreadable.port).refused(&unreadable.why);
                }
                return words(StatusCode::BAD_REQUEST, &unreadable.why);
            }
        };
        let mut noted = Noted::begin(gate.clone(), target.host.to_string(), target.port);
        // The host is decided before it is looked up, because a DNS query would leak data from the
        // box.
        let rule = match gate.judge(target.host.clone(), target.port).await {
            Ruling::Allowed(rule) => rule,
            Ruling::Refused(why) => {
                noted.refused(&why);
                return words(StatusCode::FORBIDDEN, &format!("{}:{}: {why}", target.host, target.port));
            }
        };
        let (stream, address) = match connect(&target.host, target.port, &self.resolver, &self.lifted).await {
            Ok(connected) => connected,
            Err(Missed::Refused(why)) => {
                noted.refused(&why);
                return words(StatusCode::FORBIDDEN, &why);
            }
            Err(Missed::Failed(why)) => {
                noted.failed(&why);
                return words(StatusCode::BAD_GATEWAY, &why);
            }
        };
        noted.allowed(address, rule);
        let stream = Metered::new(stream, noted.meter.clone());
        match target.form {
            Form::Absolute => forward(request, &target, stream, noted).await,
            Form::Tunnel => {
                let client = hyper::upgrade::on(&mut request);
                let tunnel = Tunnel { client, stream, noted };
                *arranged.lock() = Some(tunnel);
                Response::new(AnyBody::default())
            }
        }
    }
}

impl Tunnel {
    async fn carry(self) {
        let Tunnel { client, mut stream, noted } = self;
        let Ok(client) = client.await else { return };
        let mut client: TokioIo<Upgraded> = TokioIo::new(client);
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut stream) => {}
            () = noted.meter.idle(IDLE) => {}
        }
    }
}
