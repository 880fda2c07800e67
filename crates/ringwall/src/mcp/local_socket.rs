//! Shares one data directory between several `ringwall mcp` processes, such as one per editor
//! window: the process that has it open serves the others at the socket `mcp.sock` in it.
//!
//! The socket has mode 0600, and the peer's uid must be the server's or 0 (`SO_PEERCRED`). The
//! first line on a connection is the [`Scope`] as JSON; after it, MCP messages follow as on
//! standard streams. When the serving process ends, the connections end too.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringwall_executor::{Acceptor, register};
use ringwall_service::Service;
use rmcp::ServiceExt as _;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::caller::{Caller, Scope};
use super::handler::Mcp;
use super::stdio::{LAST_RESPONSES_TIMEOUT, MAX_MESSAGE_BYTES};
use crate::client::owner_token;
use crate::message::{Message, UNREACHABLE};

const SOCKET: &str = "mcp.sock";
/// For the first line of a connection.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_FIRST_LINE_BYTES: u64 = 64 << 10;
/// Between a failed accept and the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket's path through `/proc/self/fd`, because the kernel limits socket paths to 108 bytes
/// and a data directory may have a longer one.
struct SocketPath {
    directory: File,
    path: PathBuf,
}

impl SocketPath {
    fn of(data: &Path) -> io::Result<Self> {
        let directory = File::open(data)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(SOCKET);
        Ok(Self { directory, path })
    }

    fn remove(&self) {
        // It may not exist.
        let _ = rustix::fs::unlinkat(&self.directory, SOCKET, rustix::fs::AtFlags::empty());
    }
}

/// The socket server. Dropping it stops it and removes the socket.
pub(crate) struct LocalSocket {
    path: SocketPath,
    serving: JoinHandle<()>,
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        self.serving.abort();
        self.path.remove();
    }
}

/// Starts the socket server. The caller must have the data directory open. If it fails, a warning
/// is logged and the server runs without it.
pub(crate) fn serve(service: &Service, data: &Path) -> Option<LocalSocket> {
    let mcp = Mcp::new(service.clone());
    match open(data) {
        Ok((path, listener)) => {
            let serving = tokio::spawn(accept(mcp, service.clone(), data.to_owned(), listener));
            Some(LocalSocket { path, serving })
        }
        Err(error) => {
            tracing::warn!(%error, "could not open mcp.sock; other `ringwall mcp` processes cannot share this data directory");
            None
        }
    }
}

fn open(data: &Path) -> io::Result<(SocketPath, OwnedFd)> {
    let path = SocketPath::of(data)?;
    // Left by a killed server: only this process has the directory open.
    path.remove();
    let listener = UnixListener::bind(&path.path)?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(&path.path, Permissions::from_mode(0o600))?;
    Ok((path, listener.into()))
}

async fn accept(mcp: Mcp, service: Service, data: PathBuf, socket: OwnedFd) {
    let listener = match Acceptor::new(socket).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, "could not listen at mcp.sock; other `ringwall mcp` processes cannot share this data directory");
            return;
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (mcp, service, data) = (mcp.clone(), service.clone(), data.clone());
                tokio::spawn(async move {
                    let served = async {
                        let stream = register(stream, |stream| UnixStream::from_std(stream.into())).await?;
                        serve_connection(&mcp, &service, &data, stream).await
                    };
                    if let Err(error) = served.await {
                        tracing::info!(%error, "a connection to mcp.sock failed");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection to mcp.sock");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection, from its first line to its end.
async fn serve_connection(mcp: &Mcp, service: &Service, data: &Path, stream: UnixStream) -> io::Result<()> {
    let (own, other) = (rustix::process::geteuid().as_raw(), stream.peer_cred()?.uid());
    if other != own && other != 0 {
        return Err(io::Error::other(format!("the peer has uid {other}")));
    }
    let (input, output) = stream.into_split();
    let mut input = BufReader::new(input);
    let mut first_line = Vec::new();
    let mut beginning = (&mut input).take(MAX_FIRST_LINE_BYTES);
    tokio::time::timeout(FIRST_LINE_TIMEOUT, beginning.read_until(b'\n', &mut first_line)).await??;
    let scope: Scope = serde_json::from_slice(&first_line)?;
    let principal = service.authenticate(owner_token(data).as_deref()).await.map_err(io::Error::other)?;
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_MESSAGE_BYTES);
    let running = mcp.for_caller(Caller::local(principal, scope)).serve(transport).await.map_err(io::Error::other)?;
    let unwanted = running.cancellation_token();
    let ended = running.waiting().await;
    // Cancels the calls that are still in progress.
    unwanted.cancel();
    ended.map(drop).map_err(io::Error::other)
}

/// Connects to the process that has the data directory open.
pub(super) async fn connect(data: &Path, scope: &Scope) -> io::Result<UnixStream> {
    let path = SocketPath::of(data)?;
    let mut stream = UnixStream::connect(&path.path).await?;
    let mut first_line = serde_json::to_vec(scope)?;
    first_line.push(b'\n');
    stream.write_all(&first_line).await?;
    Ok(stream)
}

/// Copies between standard streams and the socket. After the client's end of input, responses are
/// still written for [`LAST_RESPONSES_TIMEOUT`].
pub(super) async fn forward_stdio(stream: UnixStream) -> Result<(), Message> {
    let (mut from, mut to) = stream.into_split();
    let upward = async {
        let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut to).await;
        let _ = to.shutdown().await;
    };
    let downward = async {
        // Flushes every piece; `tokio::io::copy` would buffer short responses.
        let (mut output, mut buffer) = (tokio::io::stdout(), vec![0; 64 << 10]);
        loop {
            match from.read(&mut buffer).await {
                Ok(length @ 1..) => {
                    output.write_all(&buffer[..length]).await?;
                    output.flush().await?;
                }
                Ok(_) | Err(_) => return Ok::<_, io::Error>(()),
            }
        }
    };
    tokio::pin!(upward, downward);
    tokio::select! {
        () = &mut upward => {
            let _ = tokio::time::timeout(LAST_RESPONSES_TIMEOUT, downward).await;
            Ok(())
        }
        Ok(()) = &mut downward => Err(Message::failed(UNREACHABLE, "the Ringwall process that this one shared the data directory with has ended")
            .with_hint("start it again; it will then open the data directory itself")),
        // Standard output was closed.
        else => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_works_in_a_long_directory_and_replaces_an_old_one() {
        let home = tempfile::tempdir().expect("a directory");
        let data = home.path().join("d".repeat(120));
        std::fs::create_dir_all(&data).expect("a long name");
        let first = open(&data).expect("a socket");
        let mode = std::fs::metadata(data.join(SOCKET)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Leaves the socket behind, as a killed server does.
        drop(first);
        let (_place, listener) = open(&data).expect("another one");
        let scope = Scope { agent: Some("a".to_owned()), ..Scope::default() };
        let joined = connect(&data, &scope).await.expect("somebody listens");
        let (stream, _) = Acceptor::new(listener).await.expect("a listener").accept().await.expect("a window");
        let stream = UnixStream::from_std(stream.into()).expect("a stream");
        drop(joined);
        let mut first_line = String::new();
        BufReader::new(stream).read_line(&mut first_line).await.expect("a line");
        let read: Scope = serde_json::from_str(&first_line).expect("what it is about");
        assert_eq!((read.agent.as_deref(), read.user), (Some("a"), None));
    }
}
