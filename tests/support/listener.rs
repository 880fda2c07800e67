//! Listeners on the host that count connections and datagrams. Nothing accepts in the background: the kernel queues
//! connections, and after the attack the test checks whether one is queued.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

/// A TCP listener and a UDP socket on one address.
#[derive(Debug)]
pub struct Listener {
    stream: TcpListener,
    datagram: UdpSocket,
}

impl Listener {
    pub fn on(address: IpAddr) -> io::Result<Self> {
        Self::at(SocketAddr::new(address, 0))
    }

    pub fn at(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpListener::bind(address)?;
        stream.set_nonblocking(true)?;
        let datagram = UdpSocket::bind(SocketAddr::new(address.ip(), 0))?;
        datagram.set_nonblocking(true)?;
        Ok(Self { stream, datagram })
    }

    pub fn stream_port(&self) -> io::Result<u16> {
        Ok(self.stream.local_addr()?.port())
    }

    pub fn datagram_port(&self) -> io::Result<u16> {
        Ok(self.datagram.local_addr()?.port())
    }

    /// The number of connections since the last call.
    pub fn connections(&self) -> io::Result<usize> {
        let mut count = 0;
        loop {
            match self.stream.accept() {
                Ok(_) => count += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error),
            }
        }
    }

    /// The number of datagrams since the last call.
    pub fn datagrams(&self) -> io::Result<usize> {
        let mut count = 0;
        let mut buffer = [0_u8; 2048];
        loop {
            match self.datagram.recv_from(&mut buffer) {
                Ok(_) => count += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(error) => return Err(error),
            }
        }
    }
}

/// All addresses of the host: both loopbacks, both "any", and those of all interfaces, bridges of container engines
/// included.
pub fn host_addresses() -> Vec<IpAddr> {
    let mut found = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    // From the kernel's table of local addresses, so that no tool is needed.
    let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let mut last = None;
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["|--", address] => last = address.parse::<Ipv4Addr>().ok(),
            ["/32", "host", "LOCAL"] => found.extend(last.map(IpAddr::V4)),
            _ => {}
        }
    }
    found.sort();
    found.dedup();
    // Addresses that cannot be bound, for example without IPv6, are no targets.
    found.retain(|address| TcpListener::bind(SocketAddr::new(*address, 0)).is_ok());
    found
}
