//! Connects to an allowed host: its addresses are checked, and the checked address is connected to.
//!
//! The name is looked up once per connection, so an answer that changes between check and
//! connection (DNS rebinding) has no effect.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ringwall_policy::{NetHost, NetList, special_use};
use tokio::net::TcpStream;

use super::resolve::Resolver;
use crate::counters::retry;

const TIMEOUT: Duration = Duration::from_secs(10);
/// At most this many addresses of a name are tried.
const MAX_TRIED: usize = 4;

/// Why there is no connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectError {
    Refused(String),
    Failed(String),
}

/// `lifted` names hosts that may resolve to any address, for tests and intranets.
pub(super) async fn connect(
    host: &NetHost,
    port: u16,
    resolver: &Resolver,
    lifted: &NetList,
) -> Result<(TcpStream, IpAddr), ConnectError> {
    let found = resolver.look_up(host).await.map_err(ConnectError::Failed)?;
    let is_lifted = lifted.find(host, port).is_some();
    let mut error = ConnectError::Failed(format!("{host} has no address"));
    for address in found.into_iter().take(MAX_TRIED) {
        if !is_lifted && let Some(why) = refuse(address, port) {
            error = ConnectError::Refused(format!("{host} leads to {address}: {why}"));
            continue;
        }
        let attempt = || TcpStream::connect(SocketAddr::new(address, port));
        match tokio::time::timeout(TIMEOUT, retry(attempt)).await {
            Ok(Ok(stream)) => {
                // Do not delay small writes of the client.
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Ok(Err(source)) => error = ConnectError::Failed(format!("{host}:{port} could not be reached: {source}")),
            Err(_) => {
                error = ConnectError::Failed(format!("{host}:{port} did not answer within {} s", TIMEOUT.as_secs()))
            }
        }
    }
    Err(error)
}

fn refuse(address: IpAddr, port: u16) -> Option<&'static str> {
    if let Some(why) = special_use(address) {
        return Some(why);
    }
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    refuse_own(UdpSocket::bind(any), SocketAddr::new(address, port))
}

/// Refuses an address of this machine: the kernel then chooses `to` as the source address too.
/// Connecting a UDP socket sends nothing and does not block, so the probe needs no registration
/// with the runtime. If the probe fails, usually for lack of a descriptor, the address is refused.
fn refuse_own(probe: std::io::Result<UdpSocket>, to: SocketAddr) -> Option<&'static str> {
    const UNKNOWN: Option<&str> = Some("could not determine whether this is the machine itself");
    let Ok(probe) = probe else { return UNKNOWN };
    if probe.connect(to).is_err() {
        // Without a route the TCP connection fails as well, with a better error.
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

    /// A public address by its form that no host has, so connections to it fail.
    const NOBODY: &str = "2c0f:ffff:ffff::1";

    /// The first lookup returns a public address, the second an internal one. The clock is paused
    /// and advances when the runtime is idle, so a timeout costs no time.
    #[tokio::test(start_paused = true)]
    async fn checked_address_is_connected_to() {
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let host: NetHost = "turns.example".parse().unwrap();
        let [nobody, own] = [NOBODY, "127.0.0.1"].map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!((special_use(nobody), special_use(own).is_some()), (None, true));
        let resolver = Resolver::of_turns([nobody, own, own]);
        let none = NetList::default();
        let first = connect(&host, port, &resolver, &none).await;
        assert!(matches!(first, Err(ConnectError::Failed(_))), "{first:?}");
        assert!(futures::FutureExt::now_or_never(inside.accept()).is_none(), "the name was looked up twice");
        // The next connection looks the name up again and checks the new address.
        let second = connect(&host, port, &resolver, &none).await;
        assert!(matches!(&second, Err(ConnectError::Refused(why)) if why.contains("127.0.0.1")), "{second:?}");
        // Control: one answer is left, so each connection used exactly one; a lifted host may
        // connect to it.
        let lifted = NetList::read([format!("turns.example:{port}")]).unwrap();
        assert_eq!(connect(&host, port, &resolver, &lifted).await.unwrap().1, own);
        assert_eq!(
            connect(&host, port, &resolver, &lifted).await.unwrap_err(),
            ConnectError::Failed("turns.example has no address".to_owned())
        );
    }

    /// If a name has internal and public addresses, only the public ones are tried, in any order.
    #[tokio::test(start_paused = true)]
    async fn only_public_addresses_of_mixed_answer_are_tried() {
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let host: NetHost = "mixed.example".parse().unwrap();
        let [nobody, own] = [NOBODY, "127.0.0.1"].map(|text| text.parse::<IpAddr>().unwrap());
        for answer in [[own, nobody], [nobody, own]] {
            let resolver = Resolver::of_table(HashMap::from([("mixed.example".to_owned(), answer.to_vec())]));
            let error = connect(&host, port, &resolver, &NetList::default()).await.unwrap_err();
            // The error is that of the last address: either the public one failed, or the internal
            // one was refused after it.
            let told = match &error {
                ConnectError::Failed(why) => answer == [own, nobody] && !why.contains("no address"),
                ConnectError::Refused(why) => answer == [nobody, own] && why.contains("127.0.0.1"),
            };
            assert!(told, "{error:?}");
            assert!(
                futures::FutureExt::now_or_never(inside.accept()).is_none(),
                "the internal address was connected to"
            );
        }
    }

    #[tokio::test]
    async fn address_that_cannot_be_probed_is_refused() {
        let own = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let no_descriptor = Err(std::io::Error::from(std::io::ErrorKind::QuotaExceeded));
        assert!(refuse_own(no_descriptor, own).is_some_and(|why| why.contains("could not determine")));
        let probe = UdpSocket::bind("127.0.0.1:0");
        assert_eq!(refuse_own(probe, own), Some("the machine itself"));
    }
}
