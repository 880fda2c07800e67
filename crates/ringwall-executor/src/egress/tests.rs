//! Tests with real sockets on both sides; only name resolution comes from a table.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use ringwall_policy::{NetHost, NetList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Connection, Fate, Gate, Proxy, Resolver, Ruling};

#[derive(Debug)]
struct Listed {
    allow: NetList,
    noted: Mutex<Vec<Connection>>,
}

impl Gate for Listed {
    fn judge(&self, host: NetHost, port: u16) -> BoxFuture<'_, Ruling> {
        let ruling = match self.allow.find(&host, port) {
            Some(entry) => Ruling::Allowed(entry.to_string()),
            None => Ruling::Refused("not in the list".to_owned()),
        };
        Box::pin(std::future::ready(ruling))
    }

    fn note(&self, connection: Connection) {
        self.noted.lock().push(connection);
    }
}

/// A proxy, and a server that clients may ask for.
struct Fixture {
    gate: Arc<Listed>,
    proxy: SocketAddr,
    other: TcpListener,
    port: u16,
    over: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Fixture {
    /// `{port}` in list entries stands for the server's port.
    async fn new(allow: &[&str], lifted: &[&str], table: &[(&str, &str)]) -> Self {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = other.local_addr().unwrap().port();
        let list = |entries: &[&str]| {
            NetList::read(entries.iter().map(|entry| entry.replace("{port}", &port.to_string()))).unwrap()
        };
        let mut names: HashMap<String, Vec<_>> = HashMap::new();
        for (name, address) in table {
            names.entry((*name).to_owned()).or_default().push(address.parse().unwrap());
        }
        let gate = Arc::new(Listed { allow: list(allow), noted: Mutex::default() });
        let proxy = Proxy::new(gate.clone(), Resolver::of_table(names), list(lifted));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (over, is_over) = oneshot::channel();
        let serving = tokio::spawn(proxy.serve(OwnedFd::from(listener), async {
            let _ = is_over.await;
        }));
        Self { gate, proxy: address, other, port, over, serving }
    }

    async fn ask(&self, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.proxy).await.unwrap();
        client.write_all(request.replace("{port}", &self.port.to_string()).as_bytes()).await.unwrap();
        client
    }

    /// Sends a request and reads the whole answer.
    async fn told(&self, request: &str) -> String {
        let mut client = self.ask(request).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Ends the proxy and returns the recorded connections.
    async fn end(self) -> Vec<Connection> {
        let _ = self.over.send(());
        self.serving.await.unwrap().unwrap();
        std::mem::take(&mut self.gate.noted.lock())
    }
}

/// Reads until the end of a request or response head.
async fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn request_is_forwarded_and_answer_returned() {
    let fixture = Fixture::new(&["good.test:{port}"], &["good.test:{port}"], &[("good.test", "127.0.0.1")]).await;
    let answering = async {
        let (mut stream, _) = fixture.other.accept().await.unwrap();
        let asked = head(&mut stream).await;
        let mut content = [0; 4];
        stream.read_exact(&mut content).await.unwrap();
        let answer = "HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nProxy-Authenticate: x\r\nContent-Length: 5\r\n\r\nhello";
        stream.write_all(answer.as_bytes()).await.unwrap();
        (asked, content)
    };
    let request = "POST http://GOOD.test.:{port}/a?b HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: secret\r\n\
                   Connection: close, x-hop\r\nX-Hop: 1\r\nX-Own: 2\r\nContent-Length: 4\r\n\r\nbody";
    let (told, (asked, content)) = tokio::join!(fixture.told(request), answering);
    let asked = asked.to_lowercase();
    assert!(asked.starts_with("post /a?b http/1.1\r\n"), "{asked}");
    assert!(
        asked.contains(&format!("\r\nhost: good.test:{}\r\n", fixture.port)) && asked.contains("x-own: 2"),
        "{asked}"
    );
    assert!(!asked.contains("secret") && !asked.contains("x-hop") && !asked.contains("evil"), "{asked}");
    assert_eq!(&content, b"body");
    // The redirect is not followed: the client requests the new location itself.
    let told = told.to_lowercase();
    assert!(told.starts_with("http/1.1 302") && told.contains("location: http://evil.test/"), "{told}");
    assert!(told.ends_with("hello") && !told.contains("proxy-authenticate"), "{told}");
    let (port, noted) = (fixture.port, fixture.end().await);
    let [connection] = noted.as_slice() else { panic!("{noted:?}") };
    assert_eq!((connection.host.as_str(), connection.port, connection.fate), ("good.test", port, Fate::Allowed));
    assert_eq!(
        (connection.reason.as_str(), connection.address),
        (&*format!("good.test:{port}"), "127.0.0.1".parse().ok())
    );
    assert!(connection.bytes_sent > 4 && connection.bytes_received > 5, "{connection:?}");
}

#[tokio::test]
async fn tunnel_carries_bytes_both_ways_and_ends_with_box() {
    let fixture = Fixture::new(&["*.good.test:{port}"], &["*.good.test:{port}"], &[("a.good.test", "127.0.0.1")]).await;
    let mut client = fixture.ask("CONNECT a.good.test:{port} HTTP/1.1\r\nHost: a.good.test\r\n\r\n").await;
    let (mut other, _) = fixture.other.accept().await.unwrap();
    let told = head(&mut client).await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    client.write_all(b"\x16\x03\x01up").await.unwrap();
    let mut up = [0; 5];
    other.read_exact(&mut up).await.unwrap();
    other.write_all(b"down").await.unwrap();
    let mut down = [0; 4];
    client.read_exact(&mut down).await.unwrap();
    assert_eq!((&up, &down), (b"\x16\x03\x01up", b"down"));
    let noted = fixture.end().await;
    assert_eq!((noted[0].bytes_sent, noted[0].bytes_received, noted[0].fate), (5, 4, Fate::Allowed));
    // Both sides see that the connection has ended.
    assert_eq!(other.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn forbidden_host_or_address_is_not_connected_to() {
    let allow = ["good.test:{port}", "inner.test:{port}", "mixed.test:{port}", "127.0.0.1:{port}", "gone.test:{port}"];
    let table = [
        ("good.test", "127.0.0.1"),
        ("good.test.evil.test", "127.0.0.1"),
        ("evil.test", "127.0.0.1"),
        ("inner.test", "127.0.0.1"),
        ("mixed.test", "::ffff:127.0.0.1"),
        ("mixed.test", "169.254.169.254"),
        ("mixed.test", "fd00:ec2::254"),
    ];
    let fixture = Fixture::new(&allow, &["good.test:{port}"], &table).await;
    let refusals = [
        ("good.test.evil.test:{port}", "403"),
        ("evil.test:{port}", "403"),
        ("xgood.test:{port}", "403"),
        ("a.good.test:{port}", "403"),
        ("good.test:1", "403"),
        // Allowed by name, but resolving to a forbidden address.
        ("inner.test:{port}", "403"),
        ("mixed.test:{port}", "403"),
        ("127.0.0.1:{port}", "403"),
        ("[::ffff:127.0.0.1]:{port}", "403"),
        ("[::1]:{port}", "403"),
        ("localhost:{port}", "403"),
        ("2130706433:{port}", "400"),
        ("0x7f000001:{port}", "400"),
        ("0177.0.0.1:{port}", "400"),
        ("127.1:{port}", "400"),
        ("good.test@evil.test:{port}", "400"),
        ("evil.test@good.test:{port}", "400"),
        ("good.test%2eevil.test:{port}", "400"),
        ("gone.test:{port}", "502"),
    ];
    for (host, status) in refusals {
        for request in [
            format!("CONNECT {host} HTTP/1.1\r\nHost: good.test:{{port}}\r\nConnection: close\r\n\r\n"),
            format!("GET http://{host}/ HTTP/1.1\r\nHost: good.test:{{port}}\r\nConnection: close\r\n\r\n"),
        ] {
            let told = fixture.told(&request).await;
            assert!(told.starts_with(&format!("HTTP/1.1 {status}")), "{request}{told}");
        }
    }
    for request in [
        "GET / HTTP/1.1\r\nHost: good.test:{port}\r\nConnection: close\r\n\r\n",
        "GET https://good.test:{port}/ HTTP/1.1\r\nHost: good.test:{port}\r\nConnection: close\r\n\r\n",
        "\x16\x03\x01\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
    ] {
        let told = fixture.told(request).await;
        assert!(told.starts_with("HTTP/1.1 400"), "{request}{told}");
    }
    // Control: an allowed connection reaches the same server, and no other one has.
    let mut client = fixture.ask("CONNECT good.test:{port} HTTP/1.1\r\n\r\n").await;
    let (_other, from) = fixture.other.accept().await.unwrap();
    assert!(head(&mut client).await.starts_with("HTTP/1.1 200"));
    assert!(from.ip().is_loopback());
    let accepting = futures::FutureExt::now_or_never(fixture.other.accept());
    assert!(accepting.is_none(), "another connection was made");
    let noted = fixture.end().await;
    assert_eq!(noted.iter().filter(|noted| noted.fate == Fate::Allowed).count(), 1);
    assert_eq!(noted.iter().filter(|noted| noted.fate == Fate::Failed).count(), 2);
    assert!(noted.iter().all(|noted| (noted.fate == Fate::Allowed) == noted.address.is_some()), "{noted:?}");
}

#[tokio::test]
async fn empty_list_allows_nothing() {
    let fixture = Fixture::new(&[], &["good.test:{port}"], &[("good.test", "127.0.0.1")]).await;
    let told = fixture.told("CONNECT good.test:{port} HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    assert!(told.starts_with("HTTP/1.1 403") && told.contains("not in the list"), "{told}");
}

#[tokio::test]
async fn connection_above_limit_waits() {
    let fixture = Fixture::new(&["good.test:{port}"], &["good.test:{port}"], &[("good.test", "127.0.0.1")]).await;
    let mut open = Vec::new();
    for _ in 0..32 {
        let mut client = fixture.ask("CONNECT good.test:{port} HTTP/1.1\r\n\r\n").await;
        let (other, _) = fixture.other.accept().await.unwrap();
        assert!(head(&mut client).await.starts_with("HTTP/1.1 200"));
        open.push((client, other));
    }
    let mut late = fixture.ask("CONNECT good.test:{port} HTTP/1.1\r\n\r\n").await;
    assert_eq!(fixture.gate.noted.lock().len(), 0, "none is over");
    open.pop();
    // The next connection that the server sees is the one that waited.
    let (_other, _) = fixture.other.accept().await.unwrap();
    assert!(head(&mut late).await.starts_with("HTTP/1.1 200"));
    assert_eq!(fixture.gate.noted.lock().len(), 1);
}
