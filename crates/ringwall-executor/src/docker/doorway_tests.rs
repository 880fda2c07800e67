//! Tests of the proxy socket's hand-over: correct shims, shims that exit early, and processes that
//! pose as one.

use std::net::TcpListener;
use std::os::fd::AsFd;

use ringwall_jail::wire;
use rustix::net::SocketAddrUnix;

use super::*;

struct Home {
    directory: tempfile::TempDir,
    instance: Instance,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Longer than a socket address (107 bytes).
        let data = directory.path().join("d".repeat(120));
        std::fs::create_dir(&data).unwrap();
        Home { instance: Instance::of(&data).unwrap(), directory }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("d".repeat(120))
    }

    fn open(&self) -> Doorway {
        Doorway::open(&self.data(), &self.instance).unwrap()
    }

    fn left(&self) -> usize {
        std::fs::read_dir(self.data().join(DIRECTORY)).unwrap().count()
    }
}

fn call(doorway: &Doorway) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let directory = rustix::fs::open(doorway.path().parent().unwrap(), OFlags::PATH, Mode::empty()).unwrap();
    let short = format!("/proc/self/fd/{}/", directory.as_raw_fd());
    let name = doorway.path().file_name().unwrap().to_str().unwrap();
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
    let home = Home::new();
    let doorway = home.open();
    assert_eq!(home.left(), 1);
    drop(call(&doorway));
    assert!(matches!(doorway.take_proxy_socket("x").await, Err(Error::NoProxySocket)));
    assert_eq!(home.left(), 0, "the socket is gone");
    drop(home.open());
    assert_eq!(home.left(), 0, "also without a connection");
}

#[tokio::test]
async fn wrong_socket_is_not_accepted_as_proxy_socket() {
    let home = Home::new();
    let (elsewhere, (pipe, _kept)) = (listening(), std::io::pipe().unwrap());
    let stream = std::net::TcpStream::connect(elsewhere.local_addr().unwrap()).unwrap();
    for (what, descriptors) in [
        ("nothing", vec![]),
        ("another port", vec![elsewhere.as_fd()]),
        ("a connection", vec![stream.as_fd()]),
        ("a pipe", vec![pipe.as_fd()]),
    ] {
        let doorway = home.open();
        let caller = call(&doorway);
        wire::send(&caller, &Report::ProxySocket, &descriptors).unwrap();
        drop(caller);
        let taken = doorway.take_proxy_socket("x").await;
        assert!(matches!(taken, Err(Error::NoProxySocket | Error::Talk(_))), "{what}: {taken:?}");
    }
}

#[tokio::test]
async fn a_command_that_is_not_there_is_told() {
    let home = Home::new();
    for (errno, is_missing) in [(2, true), (13, false)] {
        let doorway = home.open();
        let caller = call(&doorway);
        wire::send(&caller, &Report::NotExecuted { tried: c"/bin/x".into(), errno }, &[]).unwrap();
        let told = doorway.take_proxy_socket("x").await.unwrap_err();
        match told {
            Error::CommandNotFound { command } => assert!(is_missing && command == "x"),
            Error::CommandNotExecutable { command, errno } => assert!(!is_missing && command == "x" && errno == 13),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_sweep_takes_what_the_dead_left() {
    let home = Home::new();
    let doorway = home.open();
    let leftover = home.data().join(DIRECTORY).join("1-1-0-7");
    std::fs::write(&leftover, "").unwrap();
    let another = Instance::of(&home.data()).unwrap();
    sweep(&home.data(), &another);
    assert!(!leftover.exists() && doorway.path().exists(), "only the socket of the dead maker is removed");
}
