//! Tests of the proxy socket's hand-over: correct shims, shims that exit early, and processes that
//! pose as one.

use std::net::TcpListener;
use std::os::fd::AsFd;

use ringwall_jail::wire;
use rustix::net::SocketAddrUnix;

use super::*;

struct Fixture {
    directory: tempfile::TempDir,
    instance: Instance,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Longer than a socket address (107 bytes).
        let data = directory.path().join("d".repeat(120));
        std::fs::create_dir(&data).unwrap();
        Fixture { instance: Instance::of(&data).unwrap(), directory }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("d".repeat(120))
    }

    fn open(&self) -> ProxySocketReceiver {
        ProxySocketReceiver::open(&self.data(), &self.instance).unwrap()
    }

    fn left(&self) -> usize {
        std::fs::read_dir(self.data().join(DIRECTORY)).unwrap().count()
    }
}

fn call(receiver: &ProxySocketReceiver) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let directory = rustix::fs::open(receiver.path().parent().unwrap(), OFlags::PATH, Mode::empty()).unwrap();
    let short = format!("/proc/self/fd/{}/", directory.as_raw_fd());
    let name = receiver.path().file_name().unwrap().to_str().unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(short + name).unwrap()).unwrap();
    socket
}

/// A listening socket like the shim's, but with a port of its own because tests run in parallel.
/// `check` refuses it for that; the accepting case is tested where docker is available.
fn listening() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[tokio::test]
async fn closed_connection_hands_over_no_socket() {
    let fixture = Fixture::new();
    let receiver = fixture.open();
    assert_eq!(fixture.left(), 1);
    drop(call(&receiver));
    assert!(matches!(receiver.receive("x").await, Err(Error::NoProxySocket)));
    assert_eq!(fixture.left(), 0, "the socket is gone");
    drop(fixture.open());
    assert_eq!(fixture.left(), 0, "also without a connection");
}

#[tokio::test]
async fn wrong_socket_is_not_accepted_as_proxy_socket() {
    let fixture = Fixture::new();
    let (elsewhere, (pipe, _kept)) = (listening(), std::io::pipe().unwrap());
    let stream = std::net::TcpStream::connect(elsewhere.local_addr().unwrap()).unwrap();
    for (what, descriptors) in [
        ("nothing", vec![]),
        ("another port", vec![elsewhere.as_fd()]),
        ("a connection", vec![stream.as_fd()]),
        ("a pipe", vec![pipe.as_fd()]),
    ] {
        let receiver = fixture.open();
        let caller = call(&receiver);
        wire::send(&caller, &Report::ProxySocket, &descriptors).unwrap();
        drop(caller);
        let taken = receiver.receive("x").await;
        assert!(matches!(taken, Err(Error::NoProxySocket | Error::Talk(_))), "{what}: {taken:?}");
    }
}

#[tokio::test]
async fn command_that_cannot_be_executed_is_reported() {
    let fixture = Fixture::new();
    for (errno, is_missing) in [(2, true), (13, false)] {
        let receiver = fixture.open();
        let caller = call(&receiver);
        wire::send(&caller, &Report::NotExecuted { tried: c"/bin/x".into(), errno }, &[]).unwrap();
        let told = receiver.receive("x").await.unwrap_err();
        match told {
            Error::CommandNotFound { command } => assert!(is_missing && command == "x"),
            Error::CommandNotExecutable { command, errno } => assert!(!is_missing && command == "x" && errno == 13),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn sweep_deletes_sockets_of_dead_owners_only() {
    let fixture = Fixture::new();
    let receiver = fixture.open();
    let leftover = fixture.data().join(DIRECTORY).join("1-1-0-7");
    std::fs::write(&leftover, "").unwrap();
    let another = Instance::of(&fixture.data()).unwrap();
    sweep(&fixture.data(), &another);
    assert!(!leftover.exists() && receiver.path().exists(), "only the socket of the dead owner is deleted");
}
