//! Registers descriptors with tokio, and retries while all epoll watches of the user are taken
//! (ENOSPC).
//!
//! Tokio registers a connection when it is accepted or made, and closes it if that fails. The
//! functions here repeat the registration until the guard has ended the box that holds the watches.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};
use tokio::io::Interest;
use tokio::net::TcpStream;

const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The guard checks ten times a second. The kernel takes seconds to end a box that holds millions of
/// watches, but frees them one by one meanwhile, so one of the next attempts succeeds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Registers a descriptor. `wrap` is a constructor like `TcpStream::from_std`, which closes its
/// descriptor when it fails, so each attempt gets a duplicate.
pub async fn register<T>(descriptor: OwnedFd, wrap: impl Fn(OwnedFd) -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // If no descriptor is free for the duplicate, there is only one attempt.
        let Ok(duplicate) = descriptor.try_clone() else { return wrap(descriptor) };
        match wrap(duplicate) {
            Err(error) if is_full(&error) && Instant::now() < deadline => tokio::time::sleep(RETRY_INTERVAL).await,
            registered => return registered,
        }
    }
}

/// Repeats an operation that opens and registers a descriptor, such as `TcpStream::connect`.
pub(crate) async fn retry<T, F>(attempt: impl Fn() -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match attempt().await {
            Err(error) if is_full(&error) && Instant::now() < deadline => tokio::time::sleep(RETRY_INTERVAL).await,
            done => return done,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOSPC)
}

/// A listening socket of any family that returns connections before they are registered, for
/// [`register`].
///
/// Tokio's stream type registers any descriptor; here it only waits until the socket is readable.
/// `AsyncFd` would need `unsafe`.
#[derive(Debug)]
pub struct Acceptor(TcpStream);

impl Acceptor {
    /// `socket` listens and is non-blocking.
    pub async fn new(socket: OwnedFd) -> io::Result<Self> {
        register(socket, |socket| TcpStream::from_std(socket.into())).await.map(Self)
    }

    /// The next connection, non-blocking, and its peer address. Dropping the future loses no
    /// connection.
    pub async fn accept(&self) -> io::Result<(OwnedFd, Option<SocketAddrAny>)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        self.0.async_io(Interest::READABLE, || Ok(acceptfrom_with(&self.0, flags)?)).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn registration_is_retried_while_counter_is_full() {
        let attempts = Cell::new(0);
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"x").unwrap();
        let registered = register(read, |read| {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 4 { Err(Errno::NOSPC.into()) } else { Ok(read) }
        });
        let registered = registered.await.unwrap();
        assert_eq!(attempts.get(), 4);
        assert_eq!(rustix::io::read(&registered, &mut [0; 1]), Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn other_error_is_returned_at_once() {
        let attempts = Cell::new(0);
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let failed = register(read, |_| -> io::Result<()> {
            attempts.set(attempts.get() + 1);
            Err(io::Error::from_raw_os_error(1))
        });
        assert_eq!(failed.await.unwrap_err().raw_os_error(), Some(1));
        assert_eq!(attempts.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn connect_is_repeated_while_counter_is_full() {
        let attempts = Cell::new(0);
        let connected = retry(|| {
            attempts.set(attempts.get() + 1);
            std::future::ready(if attempts.get() < 4 { Err(Errno::NOSPC.into()) } else { Ok(attempts.get()) })
        });
        assert_eq!(connected.await.unwrap(), 4);
    }

    #[tokio::test]
    async fn dropped_accept_leaves_connection_to_next_call() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = Acceptor::new(listener.into()).await.unwrap();
        assert!(futures::FutureExt::now_or_never(acceptor.accept()).is_none());
        let client = std::net::TcpStream::connect(address).unwrap();
        let (_, remote) = acceptor.accept().await.unwrap();
        assert_eq!(remote.unwrap(), client.local_addr().unwrap().into());
    }
}
