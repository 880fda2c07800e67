//! Connecting to a host that may be reached: its addresses are judged, and what was judged is what is connected to.
//!
//! Nothing is looked up a second time, so a name that leads elsewhere a moment later leads nowhere else here.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ringwall_policy::{NetHost, NetList, special_use};
use tokio::net::TcpStream;

use super::resolve::Resolver;
use crate::counters::retry;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const TRIED: usize = 4;

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missed {
    Refused(String),
    Failed(String),
}

/// `lifted` names hosts that may lead anywhere, for tests and intranets.
pub(super) async fn connect(
    host: &NetHost,
    port: u16,
    resolver: &Resolver,
    lifted: &NetList,
) -> Result<(TcpStream, IpAddr), Missed> {
    let found = resolver.look_up(host).await.map_err(Missed::Failed)?;
    let is_lifted = lifted.find(host, port).is_some();
    let mut missed = Missed::Failed(format!("{host} has no address"));
    for address in found.into_iter().take(TRIED) {
        if !is_lifted && let Some(why) = refuse(address, port) {
            missed = Missed::Refused(format!("{host} leads to {address}: {why}"));
            continue;
        }
        let attempt = || TcpStream::connect(SocketAddr::new(address, port));
        match tokio::time::timeout(TIMEOUT, retry(attempt)).await {
            Ok(Ok(stream)) => {
                // Small writes of a client are its own business.
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Ok(Err(error)) => missed = Missed::Failed(format!("{host}:{port} could not be reached: {error}")),
            Err(_) => missed = Missed::Failed(format!("{host}:{port} did not answer within {} s", TIMEOUT.as_secs())),
        }
    }
    Err(missed)
}

fn refuse(address: IpAddr, port: u16) -> Option<&'static str> {
    if let Some(why) = special_use(address) {
        return Some(why);
    }
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    refuse_own(UdpSocket::bind(any), SocketAddr::new(address, port))
}

/// Whether `to` is an address of this machine: then the kernel sends from the address that it sends to. Connecting a UDP
/// socket sends nothing and does not wait, so the probe needs no registration. An address that cannot be probed, usually
/// for want of a descriptor, is refused.
fn refuse_own(probe: std::io::Result<UdpSocket>, to: SocketAddr) -> Option<&'static str> {
    const UNKNOWN: Option<&str> = Some("whether that is the machine itself could not be found out");
    let Ok(probe) = probe else { return UNKNOWN };
    if probe.connect(to).is_err() {
        // Without a route there is no connection either, and that says why.
        return None;
    }
    match probe.local_addr() {
        Ok(local) if local.ip() == to.ip() => Some("the machine itself"),
        Ok(_) => None,
        Err(_) => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tokio::net::TcpListener;

    use super::*;

    /// Of the public internet by its form, and nobody's: what is asked of it is not answered.
    const NOBODY: &str = "2c0f:ffff:ffff::1";

    /// A name that leads to a public address when it is judged, and inside when it is looked up again. The clock goes on by itself
    /// when there is nothing else to do, so an address that does not answer costs no time.
    #[tokio::test(start_paused = true)]
    async fn what_was_judged_is_what_is_connected_to() {
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let host: NetHost = "turns.example".parse().unwrap();
        let [nobody, own] = [NOBODY, "127.0.0.1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!((special_use(nobody), special_use(own).is_some()), (None, true));
        let resolver = Resolver::of_turns([nobody, own, own]);
        let none = NetList::default();
        let first = connect(&host, port, &resolver, &none).await;
        assert!(matches!(first, Err(Missed::Failed(_))), "{first:?}");
        assert!(futures::FutureExt::now_or_never(inside.accept()).is_none(), "it was looked up twice");
        // The next connection is the next question: looked up and judged anew.
        let second = connect(&host, port, &resolver, &none).await;
        assert!(matches!(&second, Err(Missed::Refused(why)) if why.contains("127.0.0.1")), "{second:?}");
        // The control: one answer is left, no more were used, and where it may lead there it does.
        let lifted = NetList::read([format!("turns.example:{port}")]).unwrap();
        assert_eq!(connect(&host, port, &resolver, &lifted).await.unwrap().1, own);
        assert_eq!(
            connect(&host, port, &resolver, &lifted).await.unwrap_err(),
            Missed::Failed("turns.example has no address".to_owned())
        );
    }

    /// Of a name that leads to the inside and to the outside, only the outside is ever tried, in whichever order they come.
    #[tokio::test(start_paused = true)]
    async fn of_mixed_answers_only_the_public_ones_are_tried() {
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let host: NetHost = "mixed.example".parse().unwrap();
        let [nobody, own] = [NOBODY, "127.0.0.1"].map(|text| text.parse::<IpAddr>().unwrap());
        for answer in [[own, nobody], [nobody, own]] {
            let resolver = Resolver::of_table(HashMap::from([("mixed.example".to_owned(), answer.to_vec())]));
            let missed = connect(&host, port, &resolver, &NetList::default()).await.unwrap_err();
            // What is said is what became of the last one: either the outside was tried, or the inside was refused after it.
            let told = match &missed {
                Missed::Failed(why) => answer == [own, nobody] && !why.contains("no address"),
                Missed::Refused(why) => answer == [nobody, own] && why.contains("127.0.0.1"),
            };
            assert!(told, "{missed:?}");
            assert!(futures::FutureExt::now_or_never(inside.accept()).is_none(), "the inside was reached");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_asked_is_refused() {
        let own = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let no_descriptor = Err(std::io::Error::from(std::io::ErrorKind::QuotaExceeded));
        assert!(refuse_own(no_descriptor, own).is_some_and(|why| why.contains("could not be found out")));
        let probe = UdpSocket::bind("127.0.0.1:0");
        assert_eq!(refuse_own(probe, own), Some("the machine itself"));
    }
}
